// The file tree: a folder shows what it holds when it is opened; arrows, Enter and Home/End move through it.

import { h, fill, icon, Signal, type Child } from "./dom";
import type { FolderListing, Listing } from "./wire";
import type { Workbench } from "./workbench";

interface Node {
  name: string;
  path: string;
  /** Null for a file; undefined while a folder's entries are not asked for yet. */
  children: Node[] | null | undefined;
}

export class Tree {
  readonly element: HTMLElement;
  readonly listed = new Signal();
  files: string[] = [];
  tooMany = false;
  private readonly list = h("div", { class: "tree", role: "tree", "aria-label": "Files of the folder" });
  private root: Node = { name: "", path: "", children: [] };
  private readonly open = new Set<string>();
  private focused = "";
  private followed = "";
  private marked = "";
  private loaded = false;

  constructor(private readonly bench: Workbench) {
    this.element = h("nav", { class: "files", "aria-label": "Files" }, this.list);
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("click", (event) => this.onClick(event));
    bench.changed.listen(() => this.follow());
    bench.filesChanged.listen(() => void this.load());
  }

  async load(): Promise<void> {
    try {
      const listing = await this.bench.connection.get<Listing>("/api/files");
      this.files = listing.files;
      this.tooMany = listing.tooMany;
      this.root.children = listing.tooMany ? await this.folder("") : nest(listing.files);
      this.loaded = true;
      if (!this.focused) this.focused = this.root.children?.[0]?.path ?? "";
      this.render();
      this.listed.emit();
    } catch (error) {
      this.bench.complain(error);
    }
  }

  focus(): void {
    const active = this.bench.active?.path;
    if (active) this.reveal(active);
    this.item(this.focused)?.focus();
  }

  private async folder(path: string): Promise<Node[]> {
    const listing = await this.bench.connection.get<FolderListing>("/api/folder", path ? { path } : {});
    return listing.entries.map(({ name, isFolder }) => ({
      name,
      path: path ? `${path}/${name}` : name,
      children: isFolder ? undefined : null,
    }));
  }

  /** Keep the active file in sight, without taking the focus. */
  private follow(): void {
    const active = this.bench.active?.path;
    if (active && active !== this.followed) {
      this.followed = active;
      this.reveal(active);
      this.item(active)?.scrollIntoView({ block: "nearest" });
    } else this.mark();
  }

  private reveal(path: string): void {
    const parts = path.split("/");
    for (let depth = 1; depth < parts.length; depth++) this.open.add(parts.slice(0, depth).join("/"));
    this.focused = path;
    this.render();
  }

  private render(): void {
    if (this.loaded && this.root.children?.length === 0) {
      fill(this.list, h("p", { class: "tree-empty" }, "This folder has no files yet. Paste a reply that names one, and etude creates it."));
      return;
    }
    const hadFocus = this.list.contains(document.activeElement);
    fill(this.list, ...this.rows(this.root.children ?? [], 1));
    if (hadFocus) this.item(this.focused)?.focus();
    this.mark({ anew: true });
  }

  private rows(nodes: readonly Node[], level: number): Child[] {
    return nodes.flatMap((node) => {
      const isOpen = this.open.has(node.path);
      const row = this.row(node, level, isOpen);
      return isOpen && node.children ? [row, ...this.rows(node.children, level + 1)] : [row];
    });
  }

  private row(node: Node, level: number, isOpen: boolean): HTMLElement {
    const isFolder = node.children !== null;
    const row = h(
      "div",
      {
        class: isFolder ? "row row-folder" : "row row-file",
        role: "treeitem",
        "aria-level": level,
        "aria-expanded": isFolder ? String(isOpen) : null,
        tabindex: node.path === this.focused ? 0 : -1,
        "data-path": node.path,
        title: node.path,
      },
      isFolder ? icon("chevron") : h("span", { class: "row-space" }),
      h("span", { class: "row-name" }, node.name),
      isFolder ? null : h("span", { class: "row-mark", "aria-hidden": "true" }),
    );
    row.style.setProperty("--level", String(level - 1));
    return row;
  }

  /** The open file and unsaved ones, without drawing all again. */
  private mark({ anew = false } = {}): void {
    const active = this.bench.active?.path;
    const key = [active, ...this.bench.documents.map((document) => `${document.path}|${document.dirty}`)].join("\n");
    if (key === this.marked && !anew) return;
    this.marked = key;
    for (const row of this.list.querySelectorAll<HTMLElement>(".row-file")) {
      const document = this.bench.find(row.dataset.path!);
      row.setAttribute("aria-selected", String(row.dataset.path === active));
      row.classList.toggle("is-open", Boolean(document));
      row.classList.toggle("is-dirty", Boolean(document?.dirty));
    }
  }

  private item(path: string): HTMLElement | null {
    return this.list.querySelector(`[data-path="${CSS.escape(path)}"]`);
  }

  private onClick(event: MouseEvent): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>(".row");
    if (!row) return;
    this.focused = row.dataset.path!;
    this.activate(row, { focusEditor: false });
  }

  private activate(row: HTMLElement, { focusEditor }: { focusEditor: boolean }): void {
    const path = row.dataset.path!;
    if (row.classList.contains("row-folder")) {
      void this.toggle(path, !this.open.has(path));
      return;
    }
    void this.bench.open(path).then((document) => focusEditor && document?.view.focus());
  }

  private async toggle(path: string, open: boolean): Promise<void> {
    const node = this.at(path);
    if (open && node && node.children === undefined) {
      try {
        node.children = await this.folder(path);
      } catch (error) {
        this.bench.complain(error);
        return;
      }
    }
    if (open) this.open.add(path);
    else this.open.delete(path);
    this.render();
  }

  private at(path: string): Node | undefined {
    let nodes: readonly Node[] = this.root.children ?? [];
    let found: Node | undefined;
    for (let depth = 1, parts = path.split("/"); depth <= parts.length; depth++) {
      const prefix = parts.slice(0, depth).join("/");
      found = nodes.find((node) => node.path === prefix);
      nodes = found?.children ?? [];
    }
    return found;
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const row = (event.target as HTMLElement).closest<HTMLElement>(".row");
    if (!row || !this.move(event.key, row)) return;
    event.preventDefault();
  }

  private move(key: string, row: HTMLElement): boolean {
    const rows = [...this.list.querySelectorAll<HTMLElement>(".row")];
    const at = rows.indexOf(row);
    const path = row.dataset.path!;
    const isFolder = row.classList.contains("row-folder");
    const isOpen = this.open.has(path);
    if (key === "ArrowDown") return this.focusRow(rows[at + 1]);
    if (key === "ArrowUp") return this.focusRow(rows[at - 1]);
    if (key === "Home") return this.focusRow(rows[0]);
    if (key === "End") return this.focusRow(rows.at(-1));
    if (key === "Enter" || key === " ") this.activate(row, { focusEditor: key === "Enter" });
    else if (key === "ArrowRight" && isFolder && !isOpen) void this.toggle(path, true);
    else if (key === "ArrowRight" && isFolder) return this.focusRow(rows[at + 1]);
    else if (key === "ArrowLeft" && isFolder && isOpen) void this.toggle(path, false);
    else if (key === "ArrowLeft") return this.focusRow(this.item(path.slice(0, path.lastIndexOf("/"))) ?? undefined);
    else return key.length === 1 && this.typeAhead(rows, at, key);
    return true;
  }

  private typeAhead(rows: HTMLElement[], at: number, key: string): boolean {
    const after = [...rows.slice(at + 1), ...rows.slice(0, at)];
    return this.focusRow(after.find((row) => row.textContent?.toLowerCase().startsWith(key.toLowerCase())));
  }

  private focusRow(row: HTMLElement | undefined): boolean {
    if (!row) return false;
    this.item(this.focused)?.setAttribute("tabindex", "-1");
    this.focused = row.dataset.path!;
    row.setAttribute("tabindex", "0");
    row.focus();
    return true;
  }
}

/** Slash paths as nested nodes, folders first. */
function nest(paths: readonly string[]): Node[] {
  const root: Node = { name: "", path: "", children: [] };
  const folders = new Map<string, Node>([["", root]]);
  const folder = (path: string): Node => {
    const known = folders.get(path);
    if (known) return known;
    const cut = path.lastIndexOf("/");
    const node: Node = { name: path.slice(cut + 1), path, children: [] };
    folders.set(path, node);
    folder(path.slice(0, Math.max(cut, 0))).children!.push(node);
    return node;
  };
  for (const path of paths) {
    const cut = path.lastIndexOf("/");
    folder(path.slice(0, Math.max(cut, 0))).children!.push({ name: path.slice(cut + 1), path, children: null });
  }
  for (const node of folders.values()) node.children!.sort(foldersFirst);
  return root.children!;
}

function foldersFirst(a: Node, b: Node): number {
  const byKind = Number(a.children === null) - Number(b.children === null);
  return byKind || a.name.localeCompare(b.name, "en", { numeric: true });
}
