package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every kind of event that the API knows can be asked for.
func TestNoticeKinds(t *testing.T) {
	content, err := os.ReadFile("../../supervisor/server/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Words map[string]map[string]any `json:"x-stockade-words"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	known := slices.Sorted(maps.Keys(document.Words["NoticeKind"]))
	if diff := cmp.Diff(known, slices.Sorted(slices.Values(noticeKinds))); len(known) == 0 || diff != "" {
		t.Error(diff)
	}
}
