package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Ask carries out an operation with effect, by its name, and does not wait for anybody's leave: where policy requires
// that, the answer is that it is queued, and under which approval. FollowFrames waits for its receipt.
func (c *Client) Ask(ctx context.Context, op api.Op, parameters any) (*api.Pending, *api.Receipt, error) {
	d := *c
	d.async = true
	path := "/v1/ops/" + string(op)
	if op == api.OpSessionOpen {
		path = "/v1/sessions"
	}
	a := d.post(ctx, path, parameters)
	if a.err != nil || a.resp.StatusCode != http.StatusAccepted {
		r, err := receipt(a)
		return nil, r, err
	}
	p, err := document[api.Pending](a)
	return p, nil, err
}

// Approvals lists what the caller waits for leave for, or may decide, in the order in which it last changed. State,
// Limit, After and WaitMS count: with the Next of one list as After, another waits for what changes.
func (c *Client) Approvals(ctx context.Context, filter api.Read) (*api.ApprovalList, error) {
	return document[api.ApprovalList](c.get(ctx, "/v1/approvals", query(filter)))
}

// Approval shows what leave is asked for.
func (c *Client) Approval(ctx context.Context, id string) (*api.Approval, error) {
	return document[api.Approval](c.get(ctx, "/v1/approvals/"+url.PathEscape(id), nil))
}

// Approve gives leave to what has the review token of the verdict.
func (c *Client) Approve(ctx context.Context, verdict api.Verdict) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpApprove, verdict))
}

// Deny denies leave, or takes the caller's own request back.
func (c *Client) Deny(ctx context.Context, verdict api.Verdict) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpDeny, verdict))
}
