// What the agent asks, with its suggestions and room for any other answer. It waits as long as it takes.

import type { QuestionAsked } from "./agent_wire";
import { fill, h } from "./dom";
import { caps } from "./tabs";

export class AgentQuestion {
  readonly element = h("section", { class: "question", "aria-labelledby": "agent-question-title", hidden: true });
  private readonly text = h("textarea", { class: "question-text", rows: 2, "aria-label": "Your answer", placeholder: "Or write another answer", spellcheck: "false" });
  private readonly problem = h("p", { class: "agent-problem", role: "alert", hidden: true });
  private asked: QuestionAsked | null = null;

  constructor(private readonly answer: (question: string, text: string) => Promise<void>) {}

  render(asked: QuestionAsked | null): void {
    if (asked?.id === this.asked?.id) return;
    this.asked = asked;
    this.element.hidden = asked === null;
    this.problem.hidden = true;
    this.text.value = "";
    if (!asked) return fill(this.element);
    const choices = asked.choices.map((choice) => h("button", { type: "button", class: "choice", onclick: () => void this.send(choice) }, choice));
    const send = h("button", { type: "button", class: "apply-button", onclick: () => void this.send(this.text.value) }, "Answer", caps("Mod+Enter"));
    fill(
      this.element,
      h("h3", { id: "agent-question-title" }, "The agent asks"),
      h("p", { class: "question-asked" }, asked.text),
      choices.length > 0 && h("div", { class: "choices" }, ...choices),
      h("div", { class: "agent-box" }, this.text, h("div", { class: "agent-box-foot" }, send)),
      this.problem,
    );
  }

  focus(): void {
    (this.element.querySelector<HTMLElement>(".choice") ?? this.text).focus();
  }

  /** True if the focus was where Ctrl+Enter means to answer. */
  submit(): boolean {
    if (document.activeElement !== this.text) return false;
    void this.send(this.text.value);
    return true;
  }

  private async send(text: string): Promise<void> {
    if (!this.asked) return;
    if (!text.trim()) {
      this.say("Write an answer, or choose one.");
      this.text.focus();
      return;
    }
    const buttons = this.element.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      await this.answer(this.asked.id, text.trim());
    } catch (error) {
      this.say(error instanceof Error ? error.message : String(error));
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }

  private say(problem: string): void {
    this.problem.hidden = false;
    this.problem.textContent = problem;
  }
}
