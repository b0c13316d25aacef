package tools

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Wire is the form in which a provider defines tools, calls them, and is answered.
type Wire struct {
	define func(*Tool) jsontext.Value // of a tool that is a function with a schema
	parse  func(jsontext.Value) (Invocation, *api.Error)
	render func(Invocation, *Answer) any
}

// Invocation is a call as a model makes it.
type Invocation struct {
	ID        string // that the provider gave it
	Tool      string
	Arguments []byte // JSON
	custom    bool   // of a tool without a schema: OpenAI's custom_tool_call
}

// Parse reads a call in the provider's form.
func (p *Profile) Parse(call jsontext.Value) (Invocation, *api.Error) { return p.Wire.parse(call) }

// Render is the answer in the provider's form.
func (p *Profile) Render(call Invocation, a *Answer) jsontext.Value {
	return must(p.Wire.render(call, a))
}

// Refuse is the answer to a call of a tool that there is not.
func (p *Profile) Refuse(e *api.Error) *Answer {
	r := &run{call: Call{Profile: p}}
	return r.failed(failure{status: "error", code: e.Code, message: e.Message})
}

// must is for documents that are made here.
func must(v any) jsontext.Value {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("bug: " + err.Error()) // every text in it was made valid
	}
	return jsontext.Value(b)
}

// ids are bounded: they are given back as they came.
const longestID = 256

func checkID(id string) *api.Error {
	if len(id) > longestID {
		return api.Errorf(api.CodeInvalidParams, "the id of the call has %d bytes, the limit is %d", len(id), longestID)
	}
	return nil
}

// responses is the form of OpenAI's Responses API, and of codex: function_call and custom_tool_call.
var responses = Wire{
	define: func(t *Tool) jsontext.Value {
		return must(struct {
			Type        string         `json:"type"`
			Name        string         `json:"name"`
			Description string         `json:"description"`
			Strict      bool           `json:"strict"`
			Parameters  jsontext.Value `json:"parameters"`
		}{"function", t.Name, t.Text, false, t.Schema()})
	},
	parse: func(raw jsontext.Value) (in Invocation, fault *api.Error) {
		call, fault := api.Decode[struct {
			Type      string  `json:"type"`
			ID        string  `json:"id,omitempty"`
			CallID    string  `json:"call_id"`
			Name      string  `json:"name"`
			Status    string  `json:"status,omitempty"`
			Arguments *string `json:"arguments,omitzero"`
			Input     *string `json:"input,omitzero"`
		}](raw)
		if fault != nil {
			return in, fault
		}
		in = Invocation{ID: call.CallID, Tool: call.Name}
		switch {
		case call.Type == "function_call" && call.Arguments != nil && call.Input == nil:
			in.Arguments = []byte(*call.Arguments)
		case call.Type == "custom_tool_call" && call.Input != nil && call.Arguments == nil:
			in.custom, in.Arguments = true, must(map[string]string{"input": *call.Input})
		default:
			return in, api.Errorf(api.CodeInvalidParams, "the call is neither a function_call with arguments nor a custom_tool_call with input")
		}
		return in, checkID(in.ID)
	},
	render: func(in Invocation, a *Answer) any {
		kind := "function_call_output"
		if in.custom {
			kind = "custom_tool_call_output"
		}
		return struct {
			Type   string `json:"type"`
			CallID string `json:"call_id"`
			Output string `json:"output"`
		}{kind, in.ID, a.Text}
	},
}

// messages is the form of Anthropic's Messages API: tool_use and tool_result.
var messages = Wire{
	define: func(t *Tool) jsontext.Value {
		return must(struct {
			Name        string         `json:"name"`
			Description string         `json:"description"`
			InputSchema jsontext.Value `json:"input_schema"`
		}{t.Name, t.Text, t.Schema()})
	},
	parse: func(raw jsontext.Value) (in Invocation, fault *api.Error) {
		call, fault := api.Decode[struct {
			Type  string         `json:"type"`
			ID    string         `json:"id"`
			Name  string         `json:"name"`
			Input jsontext.Value `json:"input"`
		}](raw)
		switch {
		case fault != nil:
			return in, fault
		case call.Type != "tool_use":
			return in, api.Errorf(api.CodeInvalidParams, "the call is no tool_use")
		}
		return Invocation{ID: call.ID, Tool: call.Name, Arguments: call.Input}, checkID(call.ID)
	},
	render: func(in Invocation, a *Answer) any {
		type block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		result := struct {
			Type    string  `json:"type"`
			ID      string  `json:"tool_use_id"`
			Content []block `json:"content"`
			IsError bool    `json:"is_error,omitzero"`
		}{"tool_result", in.ID, []block{}, !a.OK}
		if a.Text != "" { // an empty block is refused there
			result.Content = append(result.Content, block{"text", a.Text})
		}
		return result
	},
}

// parts is the form of Gemini's API: functionCall and functionResponse.
var parts = Wire{
	define: func(t *Tool) jsontext.Value {
		return must(struct {
			Name        string         `json:"name"`
			Description string         `json:"description"`
			Parameters  jsontext.Value `json:"parametersJsonSchema"`
		}{t.Name, t.Text, t.Schema()})
	},
	parse: func(raw jsontext.Value) (in Invocation, fault *api.Error) {
		part, fault := api.Decode[struct {
			Call *struct {
				ID   string         `json:"id,omitempty"`
				Name string         `json:"name"`
				Args jsontext.Value `json:"args,omitzero"`
			} `json:"functionCall,omitzero"`
		}](raw)
		switch {
		case fault != nil:
			return in, fault
		case part.Call == nil:
			return in, api.Errorf(api.CodeInvalidParams, "the part has no functionCall")
		}
		return Invocation{ID: part.Call.ID, Tool: part.Call.Name, Arguments: part.Call.Args}, checkID(part.Call.ID)
	},
	render: func(in Invocation, a *Answer) any {
		type response struct {
			ID       string            `json:"id,omitempty"`
			Name     string            `json:"name"`
			Response map[string]string `json:"response"`
		}
		member := "output"
		if !a.OK {
			member = "error"
		}
		return map[string]response{"functionResponse": {in.ID, in.Tool, map[string]string{member: a.Text}}}
	},
}
