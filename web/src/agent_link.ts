// The agent panel's own socket: requests with one answer each, the list of runs, and the events of the run that is watched.

import type { Connection } from "./connection";
import { Signal } from "./dom";
import type { AttachRun, Events, FromAgentPanel, Runs, RunShown, ToAgentPanel } from "./agent_wire";

type WithoutId<T> = T extends unknown ? Omit<T, "id"> : never;
type Asked = WithoutId<FromAgentPanel>;
type Answer = Exclude<ToAgentPanel, Events | { type: "failed" }>;

const LOST = "The connection to etude was lost. It is tried again by itself; the run goes on meanwhile.";
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 4000;
const LONGEST_WAIT_MS = 5000;

export class AgentLink {
  readonly runsChanged = new Signal<RunShown[]>();
  readonly arrived = new Signal<Events>();
  readonly complained = new Signal<string>();
  readonly linkChanged = new Signal<boolean>();
  runs: RunShown[] = [];
  open = false;
  private socket: WebSocket | null = null;
  private readonly waiting = new Map<string, { settle: (answer: Answer) => void; fail: (error: Error) => void }>();
  private watched: { run: string; num: number } | null = null;
  private lastId = 0;
  private retryMs = FIRST_RETRY_MS;

  constructor(private readonly connection: Connection) {
    connection.linkChanged.listen((link) => {
      if (link === "open" && !this.socket) this.connect();
    });
  }

  private connect(): void {
    const socket = this.connection.socketTo("/agent");
    this.socket = socket;
    socket.onopen = () => {
      this.retryMs = FIRST_RETRY_MS;
      this.become(true);
      if (this.watched) this.attach(this.watched.run, this.watched.num);
    };
    socket.onmessage = (event) => this.take(JSON.parse(event.data as string) as ToAgentPanel);
    socket.onclose = () => this.closed();
  }

  private closed(): void {
    this.socket = null;
    for (const { fail } of this.waiting.values()) fail(new Error(LOST));
    this.waiting.clear();
    this.become(false);
    // The page's first socket finds out what is wrong; until it is open again there is nothing to try.
    setTimeout(() => {
      if (!this.socket && this.connection.link === "open") this.connect();
    }, this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, LONGEST_RETRY_MS);
  }

  private become(open: boolean): void {
    this.open = open;
    this.linkChanged.emit(open);
  }

  /** The answer of the server; rejects with a sentence for the person. */
  async ask<T extends Answer = Answer>(asked: Asked): Promise<T> {
    if (!this.open) await this.opened();
    const id = `agent-${++this.lastId}`;
    const { socket } = this;
    if (socket?.readyState !== WebSocket.OPEN) throw new Error(LOST);
    const answer = new Promise<T>((settle, fail) => this.waiting.set(id, { settle: (found) => settle(found as T), fail }));
    socket.send(JSON.stringify({ ...asked, id }));
    return answer;
  }

  /** Settles when the socket is open, or has not opened for a while. */
  private opened(): Promise<void> {
    return new Promise((settle) => {
      const stop = this.linkChanged.listen((open) => open && end());
      const timer = setTimeout(() => end(), LONGEST_WAIT_MS);
      const end = () => {
        clearTimeout(timer);
        stop();
        settle();
      };
    });
  }

  /** Events of this run arrive from now on, from the first one; null ends it. */
  watch(run: string | null): void {
    this.watched = run === null ? null : { run, num: 0 };
    this.attach(run ?? "", 0);
  }

  private attach(run: string, after: number): void {
    // Attached anew when the socket opens.
    if (!this.open) return;
    const asked: Omit<AttachRun, "id"> = { type: "attach", run, after };
    this.ask(asked).catch((error: Error) => this.open && this.complained.emit(error.message));
  }

  private take(message: ToAgentPanel): void {
    if (message.type === "events") this.pass(message);
    else if (message.type === "runs") this.list(message);
    if (message.type === "events") return;
    const waiting = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (message.type === "failed") waiting ? waiting.fail(new Error(message.message)) : this.complained.emit(message.message);
    else waiting?.settle(message);
  }

  private pass(events: Events): void {
    if (events.run !== this.watched?.run) return;
    this.watched.num = events.last;
    this.arrived.emit(events);
  }

  private list({ runs }: Runs): void {
    this.runs = runs;
    this.runsChanged.emit(runs);
  }
}
