// What travels between the agent panel and the server; the same names as etude/server/agent_wire.py, and the events of
// etude/agent/events.py.

import type { Failed } from "./wire";

export interface StartRun {
  type: "start";
  id: string;
  statement: string;
  check: string;
  bestOf: number;
}

export interface ListRuns {
  type: "list";
  id: string;
}

export interface AttachRun {
  type: "attach";
  id: string;
  run: string;
  after: number;
}

export interface AnswerQuestion {
  type: "answer";
  id: string;
  run: string;
  question: string;
  text: string;
}

export interface StopRun {
  type: "stop";
  id: string;
  run: string;
}

export interface ResumeRun {
  type: "resume";
  id: string;
  run: string;
  followUp: string;
}

export interface ReadChanges {
  type: "changes";
  id: string;
  run: string;
}

export interface AcceptedFile {
  number: number;
  hunks: number[] | null;
}

export interface LandChanges {
  type: "land";
  id: string;
  run: string;
  version: string;
  accepted: AcceptedFile[];
}

export interface UndoLanding {
  type: "undo";
  id: string;
  run: string;
}

export interface DiscardRun {
  type: "discard";
  id: string;
  run: string;
}

export type FromAgentPanel =
  | StartRun
  | ListRuns
  | AttachRun
  | AnswerQuestion
  | StopRun
  | ResumeRun
  | ReadChanges
  | LandChanges
  | UndoLanding
  | DiscardRun;

export type RunState = "starting" | "running" | "waiting" | "stopped" | "crashed" | "applied" | "discarded";

export interface RunShown {
  run: string;
  statement: string;
  state: RunState;
  reason: string;
  message: string;
  model: string;
  numTurns: number;
  cost: number;
  numChanged: number;
  question: string;
  startedAt: string;
  endedAt: string;
}

export interface Runs {
  type: "runs";
  id: string;
  runs: RunShown[];
}

export interface RunStarted {
  type: "run_started";
  id: string;
  run: string;
}

export interface Attached {
  type: "attached";
  id: string;
  run: string;
  after: number;
}

export interface Events {
  type: "events";
  run: string;
  last: number;
  events: AgentEvent[];
}

export interface Lines {
  beforeStart: number;
  beforeEnd: number;
  afterStart: number;
  afterEnd: number;
}

export interface ChangedFile {
  number: number;
  path: string;
  kind: string;
  unshown: string;
  note: string;
  before: string | null;
  after: string | null;
  hunks: Lines[];
  numAdded: number;
  numRemoved: number;
}

export interface Changes {
  type: "changes";
  id: string;
  run: string;
  version: string;
  files: ChangedFile[];
}

export interface LandedFile {
  path: string;
  state: string;
  message: string;
}

export interface Landed {
  type: "landed";
  id: string;
  run: string;
  files: LandedFile[];
  canUndo: boolean;
}

export interface Done {
  type: "done";
  id: string;
}

export type ToAgentPanel = Runs | RunStarted | Attached | Events | Changes | Landed | Done | Failed;

// Events.

export interface PlanStep {
  text: string;
  state: "pending" | "active" | "done";
}

export interface Started {
  event: "started";
  run: string;
  statement: string;
  model: string;
  root: string;
}

export interface TurnStarted {
  event: "turn";
  number: number;
}

export interface TextWritten {
  event: "text";
  text: string;
}

export interface CallStarted {
  event: "call";
  id: string;
  tool: string;
  summary: string;
  arguments: string;
}

export interface OutputPrinted {
  event: "output";
  id: string;
  text: string;
}

export interface CallFinished {
  event: "result";
  id: string;
  text: string;
  error: string;
  seconds: number;
  changed: string[];
}

export interface PlanChanged {
  event: "plan";
  steps: PlanStep[];
}

export interface DiagnosticsChanged {
  event: "diagnostics";
  appeared: string[];
  gone: string[];
}

export interface QuestionAsked {
  event: "question";
  id: string;
  text: string;
  choices: string[];
}

export interface QuestionAnswered {
  event: "answer";
  id: string;
  text: string | null;
}

export interface Notice {
  event: "notice";
  text: string;
}

export interface TurnFinished {
  event: "turn_done";
  number: number;
  contextTokens: number;
  generatedTokens: number;
  seconds: number;
  cost: number;
}

export interface Stopped {
  event: "stopped";
  reason: string;
  message: string;
  answer: string;
  changed: string[];
  check: string;
}

export type AgentEvent =
  | Started
  | TurnStarted
  | TextWritten
  | CallStarted
  | OutputPrinted
  | CallFinished
  | PlanChanged
  | DiagnosticsChanged
  | QuestionAsked
  | QuestionAnswered
  | Notice
  | TurnFinished
  | Stopped;
