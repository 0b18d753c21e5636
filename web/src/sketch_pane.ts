// The pane on the right: what is pasted, the button, and how each file of it fares.

import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { markdown } from "@codemirror/lang-markdown";
import { Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, drawSelection, keymap, placeholder } from "@codemirror/view";
import { fill, h } from "./dom";
import { LANGUAGES, languageOf } from "./languages";
import { RunList } from "./run_list";
import { caps } from "./tabs";
import { codeLook, styleNonce } from "./theme";
import type { Workbench } from "./workbench";

const HINT = "Paste a chat reply or a rough block of code.\n\n… existing code … gaps are fine.";

export class SketchPane {
  readonly element: HTMLElement;
  private readonly view: EditorView;
  private readonly look = new Compartment();
  private readonly instruction = h("input", {
    type: "text",
    class: "instruction",
    placeholder: "Purpose, optional",
    "aria-label": "What the change is for, optional",
    autocomplete: "off",
  });
  private readonly button = h("button", { type: "button", class: "apply-button", onclick: () => this.applyOrCancel() });
  private drawn = "";

  constructor(private readonly bench: Workbench) {
    const field = h("div", { class: "sketch-field" });
    this.view = new EditorView({ parent: field, state: this.emptyState() });
    const runs = new RunList(bench, (part, line) => this.showLine(part, line));
    this.element = h(
      "aside",
      { class: "sketch", "aria-label": "Sketch" },
      h("div", { class: "sketch-head" }, h("h2", {}, "Sketch"), h("button", { type: "button", class: "quiet", onclick: () => this.clear() }, "Clear")),
      h("div", { class: "sketch-box" }, field, h("div", { class: "sketch-foot" }, this.instruction, this.button)),
      runs.element,
    );
    bench.changed.listen(() => this.render());
    this.render();
  }

  focus(): void {
    this.view.focus();
  }

  apply(): boolean {
    const text = this.view.state.doc.toString();
    if (this.bench.busy) return true;
    if (!text.trim()) {
      this.bench.notice("The sketch is empty. Paste a chat reply or some code there first.");
      this.focus();
      return true;
    }
    void this.bench.applySketch(text, this.instruction.value.trim());
    return true;
  }

  private applyOrCancel(): void {
    if (this.bench.busy) this.bench.cancel();
    else this.apply();
  }

  private clear(): void {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: "" } });
    this.instruction.value = "";
    this.focus();
  }

  private render(): void {
    const state = this.bench.busy ? "busy" : "ready";
    if (state === this.drawn) return;
    this.drawn = state;
    this.button.classList.toggle("is-busy", this.bench.busy);
    if (this.bench.busy) fill(this.button, "Cancel", caps("Escape"));
    else fill(this.button, "Merge", caps("Mod+Enter"));
  }

  /** Light up line `number` of a part; the part is somewhere in what was pasted. */
  private showLine(part: string, number: number): void {
    const { doc } = this.view.state;
    const from = startOf(part, doc.toString().split("\n"));
    const line = doc.line(Math.min(from + number + 1, doc.lines));
    this.view.dispatch({ effects: [stuckAt.of(line.from), EditorView.scrollIntoView(line.from, { y: "center" })] });
  }

  private emptyState(): EditorState {
    return EditorState.create({
      extensions: [
        styleNonce(),
        codeLook,
        history(),
        drawSelection(),
        EditorView.lineWrapping,
        placeholder(HINT),
        stuckLine,
        keymap.of([...defaultKeymap.filter((binding) => binding.key !== "Mod-Enter" && binding.key !== "Mod-i"), ...historyKeymap]),
        this.look.of([]),
        EditorView.contentAttributes.of({ "aria-label": "Sketch or chat reply", spellcheck: "false" }),
        EditorView.updateListener.of((update) => update.docChanged && this.chooseLook()),
      ],
    });
  }

  /** A reply with fences is Markdown; a bare block is code of the open file's language. */
  private chooseLook(): void {
    const text = this.view.state.doc.sliceString(0, 100_000);
    const isReply = /^\s*(```|~~~)/m.test(text);
    const bare = languageOf(this.bench.active?.path ?? "").support ?? [];
    const look = isReply ? REPLY : bare;
    if (this.look.get(this.view.state) !== look) {
      queueMicrotask(() => this.view.dispatch({ effects: this.look.reconfigure(look) }));
    }
  }
}

/** The line of the sketch at which a part begins; its fence may have been written anew. */
function startOf(part: string, lines: readonly string[]): number {
  const wanted = part.split("\n");
  const code = wanted.findIndex((line) => line.trim() !== "" && !line.startsWith("```"));
  const found = lines.findIndex((line, at) => line === wanted[code] && (lines[at + 1] ?? "") === (wanted[code + 1] ?? ""));
  return code < 0 || found < 0 ? 0 : Math.max(0, found - code);
}

const REPLY = markdown({ codeLanguages: LANGUAGES });

const stuckAt = StateEffect.define<number>();
const stuckLine = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(stuckAt)) return Decoration.set(Decoration.line({ class: "cm-stuck" }).range(effect.value));
    }
    return transaction.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});
