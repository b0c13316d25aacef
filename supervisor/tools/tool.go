package tools

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Profile is the tools of one provider's models.
type Profile struct {
	Name  string
	Wire  Wire
	Tools []Tool
	// Budget is how many bytes of an output a model is shown unless it asks for less.
	Budget int64
	// Phrases are the sentences that these models know for what can go wrong, by code. The code itself and what the
	// supervisor says are told with them.
	Phrases map[api.Code]string
}

// Tool is one row of a profile.
type Tool struct {
	Name string
	Text string // what a model is told of it
	Args []Arg
	Ops  []api.Op // that a call can lead to
	// Native is the provider's own definition of the tool where its models know it without a schema; nil is a function with
	// a schema.
	Native map[string]any

	// What a call may do, for hosts that ask somebody before.
	ReadOnly    bool
	Destructive bool // it can take away what was there
	Idempotent  bool // the same again changes nothing more

	do func(*run, values) *Answer
}

// profiles are all of them, by the word that names them.
var profiles = []*Profile{&openAI, &anthropic, &gemini, &codex}

// Names are the profiles that there are.
func Names() []string {
	var list []string
	for _, p := range profiles {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return list
}

// Named returns a profile.
func Named(name string) (*Profile, *api.Error) {
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, api.Errorf(api.CodeNotFound, "there is no tool profile %.40q; there are %v", name, Names())
}

// Tool returns a tool of the profile.
func (p *Profile) Tool(name string) (*Tool, *api.Error) { return find(p.Tools, name) }

func find(list []Tool, name string) (*Tool, *api.Error) {
	at := slices.IndexFunc(list, func(t Tool) bool { return t.Name == name })
	if at < 0 {
		var known []string
		for _, t := range list {
			known = append(known, t.Name)
		}
		return nil, api.Errorf(api.CodeUnknownTool, "there is no tool %.80q; there are %v", name, known)
	}
	return &list[at], nil
}

// Files are the tools of the profile that work on files, and on nothing else.
func (p *Profile) Files() (list []Tool) {
	for _, t := range p.Tools {
		if !slices.ContainsFunc(t.Ops, func(op api.Op) bool { return !isFile(op) }) {
			list = append(list, t)
		}
	}
	return list
}

// Schema is the JSON Schema of the tool's arguments.
func (t *Tool) Schema() jsontext.Value { return schema(t.Args) }

// define is the tool as the provider's API takes it.
func (p *Profile) define(t *Tool) jsontext.Value {
	if t.Native != nil {
		return must(t.Native)
	}
	return p.Wire.define(t)
}

// Catalogue is the profile as hosts read it.
func (p *Profile) Catalogue() *api.ToolCatalogue {
	c := &api.ToolCatalogue{Profile: p.Name, Tools: []api.Tool{}}
	for i := range p.Tools {
		t := &p.Tools[i]
		c.Tools = append(c.Tools, api.Tool{
			Name: t.Name, Description: t.Text, InputSchema: t.Schema(), Definition: p.define(t),
			Operations: t.Ops, ReadOnly: t.ReadOnly, Destructive: t.Destructive, Idempotent: t.Idempotent,
		})
	}
	return c
}
