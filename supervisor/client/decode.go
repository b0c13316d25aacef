package client

import (
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// decode reads an answer. Unlike the supervisor, which judges strangers, a client
// ignores members that a newer supervisor may have added.
func decode[T any](body []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	return v, nil
}

// refusal returns the error that a body is, or nil when it is something else.
func refusal(resp *http.Response, body []byte) error {
	if resp.StatusCode < 400 {
		return nil
	}
	var b struct {
		Error    *api.Error `json:"error"`
		IntentID string     `json:"intent_id"`
	}
	err := json.Unmarshal(body, &b)
	if err == nil && b.Error == nil && resp.StatusCode == http.StatusGone {
		return nil // a document that says what is not kept any more
	}
	if err != nil || (b.Error == nil && b.IntentID == "") {
		return fmt.Errorf("answer %s without a code", resp.Status)
	}
	if b.Error == nil {
		return nil
	}
	return b.Error
}
