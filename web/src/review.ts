// Reviewing a merge inside the editor: hunks of the unified view, decided one by one or all at once.

import { invertedEffects } from "@codemirror/commands";
import { type Chunk, getChunks, getOriginalDoc, unifiedMergeView, updateOriginalDoc } from "@codemirror/merge";
import {
  ChangeSet,
  type EditorState,
  type Extension,
  RangeSetBuilder,
  type StateEffect,
  Text,
  type TransactionSpec,
} from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { h, icon } from "./dom";

export type Decision = "accept" | "reject";

/** The extension that shows how the document differs from `original`. */
export function reviewing(original: Text): Extension {
  return [
    unifiedMergeView({
      original,
      mergeControls: decisionButton,
      highlightChanges: true,
      diffConfig: { scanLimit: 2000, timeout: 200 },
    }),
    undoableDecisions,
    currentHunk,
  ];
}

/** Accepting changes only the original; the history would not know of it. */
const undoableDecisions = invertedEffects.of((transaction) => {
  const undone: StateEffect<unknown>[] = [];
  for (const effect of transaction.effects) {
    if (!effect.is(updateOriginalDoc)) continue;
    const before = getOriginalDoc(transaction.startState);
    undone.push(updateOriginalDoc.of({ doc: before, changes: effect.value.changes.invert(before) }));
  }
  return undone;
});

function decisionButton(type: Decision, act: (event: MouseEvent) => void): HTMLElement {
  const [label, keys, name] = type === "accept" ? ["Accept", "Alt Y", "check" as const] : ["Reject", "Alt N", "close" as const];
  const button = h("button", {
    type: "button",
    class: `hunk-button hunk-${type}`,
    title: `${label} this change (${keys})`,
    // Not a stop of the Tab key: hunks are reached with Alt+J and Alt+K, and there may be hundreds.
    tabindex: -1,
    onmousedown: act,
  });
  button.append(icon(name), label);
  return button;
}

export function hunks(state: EditorState): readonly Chunk[] {
  return getChunks(state)?.chunks ?? [];
}

export function original(state: EditorState): Text {
  return getOriginalDoc(state);
}

/** Index of the hunk at or after the cursor, for "2 of 5"; -1 without hunks. */
export function currentIndex(state: EditorState): number {
  const all = hunks(state);
  const at = state.selection.main.head;
  const found = all.findIndex((hunk) => at <= Math.max(hunk.fromB, hunk.endB));
  return found < 0 ? all.length - 1 : found;
}

/** Decide the hunk at or after the cursor and go to the next one. */
export function decide(view: EditorView, decision: Decision): boolean {
  const hunk = hunks(view.state)[currentIndex(view.state)];
  if (!hunk) return false;
  view.dispatch(decision === "accept" ? accepted(view.state, hunk) : rejected(view.state, hunk));
  const next = hunks(view.state)[currentIndex(view.state)];
  if (next) goTo(view, next);
  return true;
}

function accepted(state: EditorState, hunk: Chunk): TransactionSpec {
  const before = original(state);
  const insert = wholeLines(state.doc, hunk.fromB, hunk.toB, hunk.toA <= before.length);
  const changes = ChangeSet.of({ from: hunk.fromA, to: Math.min(before.length, hunk.toA), insert }, before.length);
  return { effects: updateOriginalDoc.of({ doc: changes.apply(before), changes }), userEvent: "accept" };
}

function rejected(state: EditorState, hunk: Chunk): TransactionSpec {
  const insert = wholeLines(original(state), hunk.fromA, hunk.toA, hunk.toB <= state.doc.length);
  return { changes: { from: hunk.fromB, to: Math.min(state.doc.length, hunk.toB), insert }, userEvent: "revert" };
}

/** The lines of a hunk's side; `to` is one past its last line's end, which at the end of a text is no character. */
function wholeLines(text: Text, from: number, to: number, lineFollows: boolean): Text {
  const lines = text.slice(from, Math.max(from, to - 1));
  return from < to && lineFollows ? lines.append(NEWLINE) : lines;
}

const NEWLINE = Text.of(["", ""]);

export function step(view: EditorView, by: 1 | -1): boolean {
  const all = hunks(view.state);
  if (all.length === 0) return false;
  const at = currentIndex(view.state);
  const inside = all[at]!.fromB <= view.state.selection.main.head;
  const next = by === 1 && !inside ? at : at + by;
  goTo(view, all[(next + all.length) % all.length]!);
  return true;
}

export function goTo(view: EditorView, hunk: Chunk): void {
  const position = Math.min(hunk.fromB, view.state.doc.length);
  view.dispatch({
    selection: { anchor: position },
    effects: EditorView.scrollIntoView(position, { y: "center" }),
    userEvent: "select",
  });
}

const currentLine = Decoration.line({ class: "cm-currentHunk" });

/** Marks the lines of the hunk that the keys would decide. */
export const currentHunk = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;

    constructor(view: EditorView) {
      this.decorations = marks(view.state);
    }

    update(update: ViewUpdate): void {
      this.decorations = marks(update.state);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

function marks(state: EditorState): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const hunk = hunks(state)[currentIndex(state)];
  if (hunk && hunk.fromB < hunk.toB) {
    for (let at = hunk.fromB; at <= hunk.endB; ) {
      const line = state.doc.lineAt(at);
      builder.add(line.from, line.from, currentLine);
      at = line.to + 1;
    }
  }
  return builder.finish();
}
