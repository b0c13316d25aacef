package api

import "github.com/go-json-experiment/json/jsontext"

// ToolCatalogue is the tools of a profile: what the models of one provider are given, so that they can use a session.
type ToolCatalogue struct {
	Profile string `json:"profile"` // openai, anthropic, gemini or codex
	Tools   []Tool `json:"tools"`
}

// Tool is one tool of a profile.
type Tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"input_schema"` // JSON Schema of its arguments
	Definition  jsontext.Value `json:"definition"`   // as the provider's API takes it among its tools
	Operations  []Op           `json:"operations"`   // that a call can lead to; policy is asked about each
	ReadOnly    bool           `json:"read_only,omitzero"`
	Destructive bool           `json:"destructive,omitzero"` // it can take away what was there
	Idempotent  bool           `json:"idempotent,omitzero"`  // the same again changes nothing more
}

// ToolCall is a call of a tool in a session, as a model made it.
type ToolCall struct {
	Profile   string         `json:"profile"`
	SessionID string         `json:"session_id"`
	Call      jsontext.Value `json:"call"` // as the provider has it: function_call, custom_tool_call, tool_use or functionCall
	Scope     Scope          `json:"scope,omitzero"`
}

// ToolAnswer is the answer to a call: what the model is given, and what it is made of. A call that was denied or has failed is
// answered too; Result says so in the provider's form.
type ToolAnswer struct {
	Result    jsontext.Value `json:"result"` // as the provider takes it: function_call_output, custom_tool_call_output, tool_result or functionResponse
	Tool      string         `json:"tool"`
	OK        bool           `json:"ok"`     // what was asked for was done; a command that ended with a status of its own was run
	Status    string         `json:"status"` // ok, running, denied, error, or the status of the operation that says no
	ErrorCode Code           `json:"error_code,omitzero"`
	Message   string         `json:"error_message,omitempty"`
	Truncated bool           `json:"truncated,omitzero"` // the text leaves something out
	ExecID    string         `json:"exec_id,omitempty"`
	Running   bool           `json:"running,omitzero"` // the execution goes on
	ExitCode  *int           `json:"exit_code,omitzero"`
	Deny      []Deny         `json:"deny,omitempty"`
	Allowed   map[string]any `json:"allowed,omitempty"` // what the session's grant has of what was asked, by member
	Receipts  []Receipt      `json:"receipts"`          // of the operations that the call led to, in order; reads have none
}
