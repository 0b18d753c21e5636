"""What the agent can do, one file a tool. Which of them are offered is `agent/tool_choice.py`."""
