package main

import (
	"fmt"
	"strings"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// scopeFlag is the scope that every call declares, as a flag: NAME=VALUE,NAME=VALUE…
type scopeFlag api.Scope

// member is one part of a scope.
type member struct {
	name  string
	value *string
}

func (s *scopeFlag) members() []member {
	return []member{{"agent_id", &s.AgentID}, {"world_id", &s.WorldID}, {"chat_id", &s.ChatID}}
}

// Set replaces the scope as a whole: the flag does not add to what the environment
// declares. An empty text is no scope.
func (s *scopeFlag) Set(text string) error {
	var read scopeFlag
	for part := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		if err := read.add(part); err != nil {
			return err
		}
	}
	*s = read
	return nil
}

func (s *scopeFlag) add(part string) error {
	name, value, _ := strings.Cut(part, "=")
	for _, m := range s.members() {
		if m.name == name && *m.value == "" && value != "" {
			*m.value = value
			return nil
		}
	}
	return fmt.Errorf("scope %q: want agent_id=…, world_id=… or chat_id=…, each once at most", part)
}

func (s *scopeFlag) String() string {
	var parts []string
	for _, m := range s.members() {
		if *m.value != "" {
			parts = append(parts, m.name+"="+*m.value)
		}
	}
	return strings.Join(parts, ",")
}

// Type is what help calls the value.
func (s *scopeFlag) Type() string { return "scope" }
