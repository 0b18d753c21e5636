// Go to file: type some letters of a path, Enter opens it.

import { fill, h, icon } from "./dom";
import type { Tree } from "./tree";
import type { Workbench } from "./workbench";

const MAX_SHOWN = 60;

export class Palette {
  private readonly input = h("input", {
    type: "text",
    class: "palette-input",
    placeholder: "Go to file…",
    "aria-label": "Go to file",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": "palette-list",
    autocomplete: "off",
    spellcheck: "false",
  });
  private readonly list = h("div", { id: "palette-list", class: "palette-list", role: "listbox", "aria-label": "Files" });
  private readonly dialog = h(
    "dialog",
    { class: "palette", "aria-label": "Go to file" },
    h("div", { class: "palette-field" }, icon("search"), this.input),
    this.list,
  );
  private chosen = 0;
  private found: string[] = [];

  constructor(
    private readonly bench: Workbench,
    private readonly tree: Tree,
  ) {
    document.body.append(this.dialog);
    tree.listed.listen(() => this.dialog.open && this.search());
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.dialog.addEventListener("click", (event) => this.onClick(event));
  }

  show(): void {
    this.input.value = "";
    this.search();
    this.dialog.showModal();
    this.input.focus();
  }

  private search(): void {
    const asked = this.input.value.trim().toLowerCase().replaceAll(" ", "");
    this.chosen = 0;
    this.found = asked ? ranked(this.tree.files, asked) : this.recent();
    this.render(asked);
  }

  private recent(): string[] {
    const open = this.bench.documents.map((document) => document.path).reverse();
    return [...new Set([...open, ...this.tree.files])].slice(0, MAX_SHOWN);
  }

  private render(asked: string): void {
    if (this.found.length === 0) {
      const none = "No file of this folder has these letters in its path.";
      const tooMany = "This folder has too many files to search by name. Open them from the tree.";
      fill(this.list, h("p", { class: "palette-none" }, this.tree.tooMany ? tooMany : none));
      return;
    }
    fill(this.list, ...this.found.map((path, index) => this.option(path, index, asked)));
    this.input.setAttribute("aria-activedescendant", `palette-${this.chosen}`);
    this.list.children[this.chosen]?.scrollIntoView({ block: "nearest" });
  }

  private option(path: string, index: number, asked: string): HTMLElement {
    const cut = path.lastIndexOf("/") + 1;
    const hits = new Set(asked ? match(path.toLowerCase(), asked)?.hits : []);
    return h(
      "div",
      {
        id: `palette-${index}`,
        class: "palette-row",
        role: "option",
        "aria-selected": String(index === this.chosen),
        "data-index": index,
        title: path,
      },
      h("span", { class: "palette-name" }, ...lettered(path, cut, path.length, hits)),
      h("span", { class: "palette-folder" }, ...lettered(path, 0, Math.max(cut - 1, 0), hits)),
    );
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const by = event.key === "ArrowDown" ? 1 : -1;
      this.chosen = (this.chosen + by + this.found.length) % Math.max(this.found.length, 1);
      this.render(this.input.value.trim().toLowerCase().replaceAll(" ", ""));
      event.preventDefault();
    } else if (event.key === "Enter") {
      event.preventDefault();
      this.choose(this.chosen);
    }
  }

  private onClick(event: MouseEvent): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>(".palette-row");
    if (row) this.choose(Number(row.dataset.index));
    else if (event.target === this.dialog) this.dialog.close();
  }

  private choose(index: number): void {
    const path = this.found[index];
    if (!path) return;
    this.dialog.close();
    void this.bench.open(path).then((document) => document?.view.focus());
  }
}

function lettered(path: string, from: number, to: number, hits: ReadonlySet<number>): (Node | string)[] {
  const pieces: (Node | string)[] = [];
  for (let at = from; at < to; at++) {
    pieces.push(hits.has(at) ? h("mark", {}, path[at]!) : path[at]!);
  }
  return pieces;
}

function ranked(paths: readonly string[], asked: string): string[] {
  const scored: { path: string; score: number }[] = [];
  for (const path of paths) {
    const found = match(path.toLowerCase(), asked);
    if (found) scored.push({ path, score: found.score });
  }
  scored.sort((a, b) => b.score - a.score || a.path.length - b.path.length);
  return scored.slice(0, MAX_SHOWN).map(({ path }) => path);
}

/** All letters in order, from the end: a file's name counts more than its folders; runs and word starts most. */
function match(path: string, asked: string): { score: number; hits: number[] } | null {
  const name = path.lastIndexOf("/") + 1;
  const whole = path.indexOf(asked, name);
  if (whole >= 0) {
    const hits = [...asked].map((_, index) => whole + index);
    return { score: 1000 - (whole - name) - path.length / 100 + (whole === name ? 200 : 0), hits };
  }
  const hits: number[] = [];
  let score = 0;
  for (let at = path.length - 1, left = asked.length - 1; left >= 0; left--, at--) {
    at = path.lastIndexOf(asked[left]!, at);
    if (at < 0) return null;
    if (hits[0] === at + 1) score += 8;
    if (at >= name) score += 4;
    if (at === 0 || "/_-.".includes(path[at - 1]!)) score += 6;
    hits.unshift(at);
  }
  return { score: score - path.length / 100, hits };
}
