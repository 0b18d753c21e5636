// One open file: its editor, what is on disk, and the merge that is running or under review in it.

import { defaultKeymap, history, historyKeymap, indentWithTab, isolateHistory } from "@codemirror/commands";
import { bracketMatching, indentOnInput, indentUnit } from "@codemirror/language";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { ChangeSet, Compartment, EditorState, StateEffect, StateField, Text, Transaction } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { Signal, h } from "./dom";
import { languageOf } from "./languages";
import { goTo, hunks, original, reviewing } from "./review";
import { codeLook, styleNonce } from "./theme";
import type { OpenedFile, WireEdit } from "./wire";

/** idle: plain editing; merging: hunks are arriving, typing waits; reviewing: hunks wait for a decision. */
export type Phase = "idle" | "merging" | "reviewing";

export class Document {
  readonly changed = new Signal();
  readonly view: EditorView;
  readonly element: HTMLElement;
  readonly language: string;
  phase: Phase = "idle";
  canUndoSave = false;
  private onDisk: Text;
  private sha: string | null;
  private readonly locked = new Compartment();
  private readonly review = new Compartment();
  private base: Text = Text.empty;
  private streamed: ChangeSet = ChangeSet.empty(0);

  constructor(
    readonly path: string,
    file: OpenedFile | null,
    readonly readOnly: boolean,
  ) {
    const { name, support } = languageOf(path);
    this.language = name;
    this.sha = file?.sha256 ?? null;
    this.canUndoSave = file?.canUndo ?? false;
    this.element = h("div", { class: "document", role: "tabpanel", "aria-label": path });
    this.view = new EditorView({
      parent: this.element,
      state: EditorState.create({
        doc: file?.text ?? "",
        extensions: [
          styleNonce(),
          codeLook,
          lineNumbers(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          highlightSpecialChars(),
          highlightSelectionMatches(),
          history(),
          drawSelection(),
          bracketMatching(),
          indentOnInput(),
          search(),
          flashes,
          support ?? [],
          indentUnit.of(usualIndent(file?.text ?? "")),
          keymap.of([indentWithTab, ...defaultKeymap.filter(isFree), ...historyKeymap, ...searchKeymap]),
          this.locked.of(this.lock()),
          this.review.of([]),
          EditorView.contentAttributes.of({ "aria-label": `Editor, ${path}`, spellcheck: "false" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged || update.selectionSet || update.transactions.some((tr) => tr.effects.length > 0)) {
              queueMicrotask(() => this.settleReview());
            }
          }),
        ],
      }),
    });
    this.onDisk = file ? this.view.state.doc : Text.empty;
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  get isNew(): boolean {
    return this.sha === null;
  }

  get dirty(): boolean {
    return this.isNew || !this.view.state.doc.eq(this.onDisk);
  }

  get baseSha(): string | null {
    return this.sha;
  }

  get undecided(): number {
    return this.phase === "idle" ? 0 : hunks(this.view.state).length;
  }

  /** The file was written as `file` says; typing may have gone on meanwhile. */
  saved(file: OpenedFile): void {
    this.sha = file.sha256;
    this.canUndoSave = file.canUndo;
    this.onDisk = this.view.state.toText(file.text);
    this.changed.emit();
  }

  /** Show what is on disk now, and forget edits and review. */
  reload(file: OpenedFile): void {
    this.endReview();
    const doc = this.view.state.toText(file.text);
    if (!doc.eq(this.view.state.doc)) this.replaceAll(doc);
    this.saved(file);
  }

  /** Gone from disk, as a save that created it was taken back. */
  goneFromDisk(): void {
    this.sha = null;
    this.canUndoSave = false;
    this.onDisk = Text.empty;
    this.changed.emit();
  }

  // A merge: begin, hunks as they come, then one of finish and takeBack.

  beginMerge(): void {
    this.base = this.view.state.doc;
    this.streamed = ChangeSet.empty(this.base.length);
    const before = this.phase === "reviewing" ? original(this.view.state) : this.base;
    this.phase = "merging";
    this.view.dispatch({
      effects: [this.locked.reconfigure(this.lock()), this.review.reconfigure(reviewing(before))],
    });
    this.changed.emit();
  }

  /** Put one more hunk into the text; its offsets are those of the text the merge began with. */
  stream(edit: WireEdit): void {
    const change = ChangeSet.of({ from: edit.start, to: edit.end, insert: edit.text }, this.base.length);
    const mapped = change.map(this.streamed);
    const isFirst = this.streamed.empty;
    this.streamed = this.streamed.compose(mapped);
    this.view.dispatch({ changes: mapped, annotations: FLEETING });
    const first = hunks(this.view.state)[0];
    if (isFirst && first) goTo(this.view, first);
    this.changed.emit();
  }

  /** The merge is whole. It takes the place of its hunks in one step, which one Ctrl+Z takes back. */
  finishMerge(edits: WireEdit[]): void {
    const hadHunks = !this.streamed.empty;
    const { anchor } = this.view.state.selection.main;
    this.withdraw();
    this.phase = "reviewing";
    this.view.dispatch({
      changes: edits.map((edit) => ({ from: edit.start, to: edit.end, insert: edit.text })),
      effects: this.locked.reconfigure(this.lock()),
      annotations: isolateHistory.of("full"),
      userEvent: "merge",
    });
    const first = hunks(this.view.state)[0];
    if (hadHunks) this.view.dispatch({ selection: { anchor: Math.min(anchor, this.view.state.doc.length) } });
    else if (first) goTo(this.view, first);
    this.settleReview();
  }

  /** The merge came to nothing: the text is again what it was. */
  takeBackMerge(): void {
    this.withdraw();
    this.phase = "reviewing";
    this.view.dispatch({ effects: this.locked.reconfigure(this.lock()) });
    this.settleReview();
  }

  private withdraw(): void {
    if (this.streamed.empty) return;
    this.view.dispatch({ changes: this.streamed.invert(this.base), annotations: FLEETING });
    this.streamed = ChangeSet.empty(this.base.length);
  }

  acceptAll(): void {
    if (this.phase === "reviewing") this.endReview();
  }

  rejectAll(): void {
    if (this.phase !== "reviewing") return;
    this.replaceAll(original(this.view.state));
    this.endReview();
  }

  /** Show a line (from 0) and let it light up for a moment. */
  flashLine(number: number): void {
    const line = this.view.state.doc.line(Math.min(number + 1, this.view.state.doc.lines));
    this.view.dispatch({
      selection: { anchor: line.from },
      effects: [EditorView.scrollIntoView(line.from, { y: "center" }), flash.of(line.from)],
    });
    this.view.focus();
  }

  lineText(number: number): string {
    return number < this.view.state.doc.lines ? this.view.state.doc.line(number + 1).text.trim() : "";
  }

  private settleReview(): void {
    if (this.phase === "reviewing" && hunks(this.view.state).length === 0) this.endReview();
    else this.changed.emit();
  }

  private endReview(): void {
    this.phase = "idle";
    this.view.dispatch({ effects: this.review.reconfigure([]) });
    this.changed.emit();
  }

  /** Replace only what differs, so that the cursor and the scroll stay. */
  private replaceAll(doc: Text): void {
    const now = this.view.state.doc.toString();
    const next = doc.toString();
    let start = 0;
    while (start < now.length && start < next.length && now[start] === next[start]) start++;
    let end = 0;
    const most = Math.min(now.length, next.length) - start;
    while (end < most && now[now.length - 1 - end] === next[next.length - 1 - end]) end++;
    const insert = next.slice(start, next.length - end);
    this.view.dispatch({ changes: { from: start, to: now.length - end, insert }, userEvent: "merge" });
  }

  /** While hunks arrive nobody types and nobody decides: their offsets are those of the text at the beginning. */
  private lock() {
    const isMerging = this.phase === "merging";
    return [
      EditorState.readOnly.of(isMerging || this.readOnly),
      EditorView.editorAttributes.of({ class: isMerging ? "cm-merging" : "" }),
    ];
  }
}

/** Hunks come and go while a merge runs; only its end is worth a step of the history. */
const FLEETING = Transaction.addToHistory.of(false);

/** Keys that the page itself uses. */
function isFree(binding: { key?: string }): boolean {
  return binding.key !== "Mod-Enter" && binding.key !== "Mod-i";
}

/** What the file indents by: a tab, or the smallest run of spaces that starts a line. */
function usualIndent(text: string): string {
  if (/^\t/m.test(text)) return "\t";
  const found = [...text.slice(0, 20000).matchAll(/^( +)\S/gm)].map((match) => match[1]!.length);
  const smallest = found.length > 0 ? Math.min(...found.filter((width) => width > 1)) : 4;
  return " ".repeat(Number.isFinite(smallest) && smallest <= 8 ? smallest : 4);
}

const flash = StateEffect.define<number>();
const flashLine = Decoration.line({ class: "cm-flash" });
const flashes = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(flash)) return Decoration.set(flashLine.range(effect.value));
    }
    return transaction.docChanged || transaction.selection ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});
