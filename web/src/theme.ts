// How code looks. Colours are CSS variables of app.css, so light and dark need no second theme here.

import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import type { Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";

const look = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "transparent", fontSize: "var(--code-size)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", fontVariantLigatures: "none" },
  ".cm-content": { padding: "10px 0 40vh", caretColor: "var(--accent)" },
  ".cm-line": { padding: "0 16px 0 10px" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--accent)", borderLeftWidth: "2px" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection":
    { backgroundColor: "var(--selection)" },
  ".cm-activeLine": { backgroundColor: "var(--line-active)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--text-faint)", border: "none" },
  ".cm-lineNumbers .cm-gutterElement": { padding: "0 8px 0 16px", minWidth: "44px", fontVariantNumeric: "tabular-nums" },
  ".cm-activeLineGutter": { backgroundColor: "transparent", color: "var(--text-soft)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": {
    backgroundColor: "transparent",
    outline: "1px solid var(--border-strong)",
    borderRadius: "2px",
  },
  ".cm-placeholder": { color: "var(--text-faint)" },
  ".cm-searchMatch": { backgroundColor: "var(--match)", borderRadius: "2px" },
  ".cm-selectionMatch": { backgroundColor: "var(--match-soft)" },
  ".cm-panels": { backgroundColor: "var(--panel)", color: "var(--text)", borderColor: "var(--border)" },
  ".cm-panels-bottom": { borderTop: "1px solid var(--border)" },
});

const colours = HighlightStyle.define([
  { tag: [t.comment, t.lineComment, t.blockComment, t.docComment], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [t.keyword, t.modifier, t.controlKeyword, t.operatorKeyword], color: "var(--code-keyword)" },
  { tag: [t.string, t.special(t.string), t.regexp, t.docString], color: "var(--code-string)" },
  { tag: [t.number, t.bool, t.null, t.atom, t.constant(t.variableName)], color: "var(--code-number)" },
  {
    tag: [t.function(t.variableName), t.function(t.propertyName), t.function(t.definition(t.variableName))],
    color: "var(--code-function)",
  },
  { tag: [t.typeName, t.className, t.namespace, t.definition(t.typeName)], color: "var(--code-type)" },
  { tag: [t.propertyName, t.attributeName], color: "var(--code-property)" },
  { tag: [t.tagName, t.angleBracket], color: "var(--code-keyword)" },
  { tag: [t.operator, t.punctuation, t.bracket, t.separator], color: "var(--code-punctuation)" },
  { tag: [t.meta, t.annotation, t.processingInstruction], color: "var(--code-meta)" },
  { tag: t.heading, color: "var(--text)", fontWeight: "650" },
  { tag: t.strong, fontWeight: "650" },
  { tag: t.emphasis, fontStyle: "italic" },
  { tag: [t.link, t.url], color: "var(--accent-text)" },
  { tag: t.invalid, color: "var(--bad)" },
]);

export const codeLook: Extension = [look, syntaxHighlighting(colours, { fallback: true })];

/** The style element needs the nonce of this page's content security policy. */
export function styleNonce(): Extension {
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";
  return EditorView.cspNonce.of(nonce);
}
