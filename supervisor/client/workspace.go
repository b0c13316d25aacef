package client

import (
	"context"
	"encoding/base64"
	"iter"
	"net/url"
	"strconv"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Diff returns a page of what an overlay has that its source has not: SessionID, GuestPath, After with AfterBytes, and
// Limit count.
func (c *Client) Diff(ctx context.Context, page api.Workspace) (*api.SpaceResult, error) {
	q := url.Values{}
	for name, value := range map[string]string{"guest_path": page.GuestPath, "after": page.After, "after_bytes": base64.StdEncoding.EncodeToString(page.AfterBytes)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if page.Limit != 0 {
		q.Set("limit", strconv.FormatInt(page.Limit, 10))
	}
	return document[api.SpaceResult](c.get(ctx, "/v1/sessions/"+url.PathEscape(page.SessionID)+"/diff", q))
}

// Changes goes through all that an overlay has, page by page. It ends with an error, or when there is no more. What
// runs may change it meanwhile: pause the session for a view of one moment.
func (c *Client) Changes(ctx context.Context, space api.Workspace) iter.Seq2[api.Change, error] {
	return func(yield func(api.Change, error) bool) {
		for {
			page, err := c.Diff(ctx, space)
			if err != nil {
				yield(api.Change{}, err)
				return
			}
			for _, change := range page.Changes {
				if !yield(change, nil) {
					return
				}
			}
			if !page.More || len(page.Changes) == 0 {
				return
			}
			last := page.Changes[len(page.Changes)-1]
			space.GuestPath, space.After, space.AfterBytes = page.GuestPath, last.Path, last.PathBytes
		}
	}
}

// Commit makes the changes of an overlay to its source: those at and below Paths, or all.
func (c *Client) Commit(ctx context.Context, space api.Workspace) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpWorkspaceCommit, space))
}

// Discard empties an overlay of a session in which nothing runs.
func (c *Client) Discard(ctx context.Context, space api.Workspace) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpWorkspaceDiscard, space))
}
