// A run as the panel knows it: events in, items out. No DOM; the views take what changed since they last looked.

import { AnsiReader, type Piece } from "./ansi";
import { Signal } from "./dom";
import type {
  AgentEvent,
  CallFinished,
  DiagnosticsChanged,
  Events,
  PlanStep,
  QuestionAsked,
  Started,
  Stopped,
  TurnFinished,
} from "./agent_wire";

// An answer that is longer is not read here; the trace has it.
const MAX_TEXT = 60_000;
// Calls before that lose what they said at length; their line stays.
const MAX_ITEMS_WITH_DETAILS = 1_000;
const MAX_LINES = 1_000;
const MAX_LINE_CHARACTERS = 2_000;
const MAX_COMMANDS = 30;
// Of a command that is not the last one any more.
const MAX_OLD_LINES = 150;

export interface TextItem {
  kind: "text";
  text: string;
  leftOut: number;
}

export interface CallItem {
  kind: "call";
  id: string;
  tool: string;
  summary: string;
  arguments: string;
  result: CallFinished | null;
  command: CommandOutput | null;
  startedAt: number;
}

export interface TurnItem {
  kind: "turn";
  number: number;
}

export interface NoticeItem {
  kind: "notice" | "answer" | "end";
  text: string;
}

export type Item = TextItem | CallItem | TurnItem | NoticeItem;

/** The last lines that a command printed. */
export class CommandOutput {
  readonly lines: Piece[][] = [[]];
  /** How many lines went out of sight at the top. */
  numGone = 0;
  /** Lines from here on (counted from the first line ever) changed since the view last looked. */
  changedFrom = 0;
  private readonly reader = new AnsiReader();
  private lastLength = 0;
  private returned = false;

  constructor(readonly call: CallItem) {}

  print(text: string): void {
    this.changedFrom = Math.min(this.changedFrom, this.numGone + this.lines.length - 1);
    for (const piece of this.reader.read(text)) this.add(piece);
    this.keep(MAX_LINES);
  }

  /** Only the last lines, at most so many. */
  keep(most: number): void {
    const over = Math.max(0, this.lines.length - most);
    this.lines.splice(0, over);
    this.numGone += over;
  }

  private add(piece: Piece): void {
    for (const part of piece.text.split(/(\n|\r)/)) {
      if (part === "\n") this.startLine();
      else if (part === "\r") this.returned = true;
      else if (part) this.write(part, piece.look);
    }
  }

  private startLine(): void {
    this.lines.push([]);
    this.lastLength = 0;
    this.returned = false;
  }

  /** A carriage return lets the line be written anew, as progress bars do. */
  private write(text: string, look: string): void {
    if (this.returned) this.lines[this.lines.length - 1] = [];
    if (this.returned) this.lastLength = 0;
    this.returned = false;
    const room = MAX_LINE_CHARACTERS - this.lastLength;
    if (room <= 0) return;
    const line = this.lines[this.lines.length - 1]!;
    line.push({ text: text.length > room ? `${text.slice(0, room)}…` : text, look });
    this.lastLength += text.length;
  }
}

export class AgentRun {
  readonly changed = new Signal();
  readonly items: Item[] = [];
  readonly commands: CommandOutput[] = [];
  readonly fresh = new Set<Item>();
  started: Started | null = null;
  plan: PlanStep[] = [];
  diagnostics: DiagnosticsChanged = { event: "diagnostics", appeared: [], gone: [] };
  question: QuestionAsked | null = null;
  stopped: Stopped | null = null;
  turn = 0;
  contextTokens = 0;
  generatedTokens = 0;
  cost = 0;
  seconds = 0;
  /** A line for whoever listens instead of looking. */
  said = "";
  private readonly calls = new Map<string, CallItem>();
  private frame = 0;

  constructor(readonly id: string) {}

  take(events: Events): void {
    for (const event of events.events) this.happened(event);
    // Many messages a second become one drawing a frame; a hidden page draws when it is seen again.
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.changed.emit();
    });
  }

  private happened(event: AgentEvent): void {
    switch (event.event) {
      case "started":
        this.started = event;
        break;
      case "turn":
        this.turn = event.number;
        this.add({ kind: "turn", number: event.number });
        break;
      case "text":
        this.write(event.text);
        break;
      case "call":
        this.call({ kind: "call", ...event, result: null, command: null, startedAt: performance.now() });
        break;
      case "output":
        this.print(event.id, event.text);
        break;
      case "result":
        this.finish(event);
        break;
      case "plan":
        this.plan = event.steps;
        break;
      case "diagnostics":
        this.diagnostics = event;
        break;
      case "question":
        this.question = event;
        this.said = `The agent asks: ${event.text}`;
        break;
      case "answer":
        this.answered(event.text);
        break;
      case "notice":
        this.add({ kind: "notice", text: event.text });
        break;
      case "turn_done":
        this.count(event);
        break;
      case "stopped":
        this.stop(event);
        break;
    }
  }

  private add(item: Item): void {
    this.items.push(item);
    this.fresh.add(item);
    const old = this.items[this.items.length - 1 - MAX_ITEMS_WITH_DETAILS];
    if (old?.kind === "call" && old.result) {
      old.arguments = "";
      old.result = { ...old.result, text: "No longer kept here; the run's trace has it." };
    }
  }

  private write(text: string): void {
    const last = this.items[this.items.length - 1];
    const item: TextItem = last?.kind === "text" ? last : { kind: "text", text: "", leftOut: 0 };
    const room = Math.max(0, MAX_TEXT - item.text.length);
    item.text += text.slice(0, room);
    item.leftOut += Math.max(0, text.length - room);
    if (item === last) this.fresh.add(item);
    else this.add(item);
  }

  private call(item: CallItem): void {
    this.calls.set(item.id, item);
    this.add(item);
    this.said = item.summary || item.tool;
  }

  private print(id: string, text: string): void {
    const item = this.calls.get(id);
    if (!item) return;
    if (!item.command) this.open(item);
    item.command?.print(text);
    this.fresh.add(item);
  }

  private open(item: CallItem): void {
    this.commands[this.commands.length - 1]?.keep(MAX_OLD_LINES);
    this.commands.push((item.command = new CommandOutput(item)));
    if (this.commands.length > MAX_COMMANDS) this.commands.shift()!.call.command = null;
  }

  private finish(event: CallFinished): void {
    const item = this.calls.get(event.id);
    if (!item) return;
    this.calls.delete(event.id);
    item.result = event;
    this.fresh.add(item);
    if (event.error) this.said = `${item.summary || item.tool}: ${event.error.replaceAll("_", " ")}`;
  }

  private answered(text: string | null): void {
    if (this.question) this.add({ kind: "notice", text: `The agent asked: ${this.question.text}` });
    this.question = null;
    this.add(text === null ? { kind: "notice", text: "Nobody answered." } : { kind: "answer", text });
  }

  private count(event: TurnFinished): void {
    this.contextTokens = event.contextTokens;
    this.generatedTokens += event.generatedTokens;
    this.cost += event.cost;
    this.seconds += event.seconds;
  }

  private stop(event: Stopped): void {
    this.stopped = event;
    this.question = null;
    if (event.answer) this.add({ kind: "end", text: event.answer });
    this.said = `The run ended: ${event.message || event.reason.replaceAll("_", " ")}`;
  }
}
