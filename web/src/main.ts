// The page is put together here: parts, their places, keys, and the first request.

import "./app.css";
import "./agent.css";
import type { AgentChanges } from "./agent_changes";
import { AgentPanel } from "./agent_panel";
import { followSystem, toggleAppearance } from "./appearance";
import { type Command, listenForKeys } from "./commands";
import { Connection, RequestFailed, takeToken } from "./connection";
import { h, icon, type IconName } from "./dom";
import { Help } from "./help";
import { Palette } from "./palette";
import { decide, step } from "./review";
import { ReviewBar } from "./review_bar";
import { SketchPane } from "./sketch_pane";
import { StatusBar } from "./status_bar";
import { caps, Tabs } from "./tabs";
import { Toasts } from "./toasts";
import { Tree } from "./tree";
import type { Hello } from "./wire";
import { Workbench } from "./workbench";

followSystem();
void start();

async function start(): Promise<void> {
  const connection = new Connection(takeToken());
  try {
    build(connection, await connection.get<Hello>("/api/hello"));
  } catch (error) {
    document.body.replaceChildren(refusal(error));
  }
}

function build(connection: Connection, hello: Hello): void {
  const bench = new Workbench(connection, hello);
  const tree = new Tree(bench);
  const pane = new SketchPane(bench);
  const tabs = new Tabs(bench, new ReviewBar(bench).element);
  const palette = new Palette(bench, tree);
  const app = h("div", { class: "app" });
  const agent = new AgentPanel(bench, app);
  tabs.element.append(agent.changes.element);
  const commands = commandsOf(bench, tree, pane, palette, agent, app, () => help.show());
  const help = new Help(commands);
  app.append(
    top(hello, agent.button, { files: () => toggleFiles(app, tree), goTo: () => palette.show(), help: () => help.show() }),
    tree.element,
    tabs.element,
    pane.element,
    agent.element,
    new StatusBar(bench).element,
    new Toasts(bench).element,
  );
  document.body.prepend(app);
  listenForKeys(commands);
  window.addEventListener("beforeunload", (event) => {
    if (!hello.readOnly && bench.documents.some((document) => document.dirty)) event.preventDefault();
  });
  bench.changed.listen(closeDrawerOn(app, bench));
  showRefusal(connection);
  window.addEventListener("focus", () => void bench.refresh());
  void tree.load();
  connection.connect();
}

function top(hello: Hello, agent: HTMLElement, act: { files: () => void; goTo: () => void; help: () => void }): HTMLElement {
  return h(
    "header",
    { class: "top" },
    iconButton("sidebar", "Show or hide the files", act.files),
    h("img", { class: "logo", src: "/icon.svg", alt: "" }),
    h("span", { class: "root", title: hello.root }, hello.root),
    h("button", { type: "button", class: "go-to", onclick: act.goTo }, icon("search"), h("span", {}, "Go to file"), caps("Mod+P")),
    h("span", { class: "top-gap" }),
    agent,
    appearanceButton(),
    h("button", { type: "button", class: "icon-button", title: "Keys (?)", "aria-label": "Keys", onclick: act.help }, "?"),
  );
}

function appearanceButton(): HTMLElement {
  const button = iconButton("moon", "Light or dark", toggleAppearance);
  button.append(icon("sun"));
  return button;
}

function iconButton(name: IconName, label: string, onclick: () => void): HTMLElement {
  return h("button", { type: "button", class: "icon-button", title: label, "aria-label": label, onclick }, icon(name));
}

function toggleFiles(app: HTMLElement, tree: Tree): void {
  const narrow = matchMedia("(max-width: 1020px)").matches;
  const shown = app.classList.toggle(narrow ? "files-shown" : "files-hidden") === narrow;
  if (shown) tree.focus();
}

/** On a narrow page the files lie over the editor; opening one puts them away. */
function closeDrawerOn(app: HTMLElement, bench: Workbench): () => void {
  let active = bench.active;
  return () => {
    if (bench.active !== active) app.classList.remove("files-shown");
    active = bench.active;
  };
}

function commandsOf(
  bench: Workbench,
  tree: Tree,
  pane: SketchPane,
  palette: Palette,
  agent: AgentPanel,
  app: HTMLElement,
  help: () => void,
): Command[] {
  const document = () => bench.active;
  // The changes of a run lie over the editor, so the keys of a review are theirs first.
  const inReview = (act: (active: NonNullable<typeof bench.active>) => void, ofRun: Parameters<AgentChanges["key"]>[0]) => () => {
    if (agent.changes.key(ofRun)) return true;
    const active = document();
    if (!active || active.phase !== "reviewing") return false;
    act(active);
    return true;
  };
  const onActive = (act: (active: NonNullable<typeof bench.active>) => void) => () => {
    const active = document();
    if (active) act(active);
  };
  return [
    { keys: "Mod+P", title: "Go to file", group: "Files", run: () => palette.show() },
    { keys: "Mod+B", title: "Show or hide the files", group: "Files", run: () => toggleFiles(app, tree) },
    { keys: "Alt+.", title: "Next open file", group: "Files", run: () => bench.showNext(1) },
    { keys: "Alt+,", title: "Previous open file", group: "Files", run: () => bench.showNext(-1) },
    { keys: "Alt+W", title: "Close the file", group: "Files", run: onActive((active) => bench.close(active)) },
    { keys: "Mod+I", title: "Go to the sketch", group: "Sketch", run: () => goToSketch(agent, pane) },
    { keys: "Mod+Enter", title: "Merge the sketch; start the agent", group: "Sketch", run: () => agent.submit() || agent.isShown || pane.apply() },
    { keys: "Escape", title: "Cancel the merge", group: "Sketch", run: () => bench.cancel() },
    { keys: "Alt+A", title: "Agent", group: "Page", run: () => agent.toggle() },
    { keys: "Mod+E", title: "Go to the editor", group: "Page", run: onActive((active) => active.view.focus()) },
    { keys: "Alt+J", title: "Next change", group: "Review", run: inReview((active) => step(active.view, 1), "next") },
    { keys: "Alt+K", title: "Previous change", group: "Review", run: inReview((active) => step(active.view, -1), "previous") },
    { keys: "Alt+Y", title: "Accept the change", group: "Review", run: inReview((active) => decide(active.view, "accept"), "accept") },
    { keys: "Alt+N", title: "Reject the change", group: "Review", run: inReview((active) => decide(active.view, "reject"), "reject") },
    { keys: "Mod+Shift+Enter", title: "Accept all", group: "Review", run: inReview((active) => active.acceptAll(), "accept all") },
    { keys: "Mod+Shift+Backspace", title: "Reject all", group: "Review", run: inReview((active) => active.rejectAll(), "reject all") },
    { keys: "Mod+S", title: "Save", group: "Save", run: onActive((active) => void bench.save(active)) },
    { keys: "Mod+Alt+S", title: "Accept and save all", group: "Save", run: () => void bench.saveAll() },
    { keys: "Mod+Alt+Z", title: "Undo the last save", group: "Save", run: onActive((active) => void bench.undoSave(active)) },
    { keys: "?", title: "These keys", group: "Page", run: help },
    { keys: "F1", title: "These keys, also while typing", group: "Page", run: help },
  ];
}

function goToSketch(agent: AgentPanel, pane: SketchPane): void {
  if (agent.isShown) agent.toggle(false);
  pane.focus();
}

/** A new start of the server has a new token; this page cannot go on. */
function showRefusal(connection: Connection): void {
  connection.linkChanged.listen((link) => {
    if (link !== "refused") return;
    const dialog = h("dialog", { class: "help" }, refusal(new RequestFailed("Refused", "etude was started anew since this page was opened. Copy what is not saved, then open the address it printed.", 401)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

function refusal(error: unknown): HTMLElement {
  const isToken = error instanceof RequestFailed && error.status === 401;
  const title = isToken ? "Open etude from its own address" : "etude does not answer";
  const message = error instanceof Error ? error.message : String(error);
  return h("div", { class: "refusal" }, h("img", { class: "logo", src: "/icon.svg", alt: "" }), h("h1", {}, title), h("p", {}, message));
}
