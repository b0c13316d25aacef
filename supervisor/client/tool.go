package client

import (
	"context"
	"net/url"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Tools returns the tools of a profile: openai, anthropic, gemini or codex.
func (c *Client) Tools(ctx context.Context, profile string) (*api.ToolCatalogue, error) {
	return document[api.ToolCatalogue](c.get(ctx, "/v1/tools", url.Values{"profile": {profile}}))
}

// CallTool has a call that a model made carried out. One that was denied or has failed is an answer.
func (c *Client) CallTool(ctx context.Context, call api.ToolCall) (*api.ToolAnswer, error) {
	return document[api.ToolAnswer](c.post(ctx, "/v1/tools/call", call))
}
