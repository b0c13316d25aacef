package supervisor

import (
	"context"
	"errors"
	"io"

	"github.com/stockade-dev/stockade/internal/blob"
	"github.com/stockade-dev/stockade/supervisor/api"
)

func admitBlob(s *Supervisor, c *call) *refusal {
	if c.brought.content == nil {
		return faulted(api.Errorf(api.CodeInvalidParams, "a blob needs content"))
	}
	return nil
}

// actBlob stores exactly the size that policy judged.
func actBlob(_ context.Context, s *Supervisor, c *call) (api.Payload, *api.Error) {
	ask := c.req.Blob
	content := &exactly{r: c.brought.content, rest: ask.SizeBytes}
	ref, size, err := s.blobs.Put(content, ask.BlobRef)
	c.watch.lap("store")
	if err == nil {
		return api.Payload{Blob: &api.BlobResult{BlobRef: ref, SizeBytes: size}}, nil
	}
	if e, ok := errors.AsType[*api.Error](err); ok { // the content's own: it did not arrive
		return api.Payload{}, e
	}
	fault := api.Errorf(api.CodeBlobFailed, "%v", err)
	if errors.Is(err, blob.ErrMismatch) || errors.Is(err, errSize) {
		fault.Code = api.CodeBlobMismatch
	}
	return api.Payload{}, fault
}

func failedBlob(api.Code, string) api.Payload { return api.Payload{} }

var errSize = errors.New("the content does not have the size that was announced")

// exactly fails unless r has exactly rest bytes.
type exactly struct {
	r    io.Reader
	rest int64
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.rest -= int64(n)
	if e.rest < 0 || err == io.EOF && e.rest != 0 {
		return n, errSize
	}
	return n, err
}

// OpenBlob returns the content of a blob and its size. Content that does not match its
// name ends in an error instead of the end. The caller closes it.
func (s *Supervisor) OpenBlob(ctx context.Context, req *api.Request) (io.ReadCloser, int64, *api.Receipt, error) {
	if denial, err := s.permitRead(req, nil); denial != nil || err != nil {
		return nil, 0, denial, err
	}
	content, size, err := s.blobs.Reader(req.Read.BlobRef)
	switch {
	case errors.Is(err, blob.ErrNotFound):
		return nil, 0, nil, api.Errorf(api.CodeNotFound, "there is no blob %s", req.Read.BlobRef)
	case errors.Is(err, blob.ErrMalformed):
		return nil, 0, nil, api.Errorf(api.CodeInvalidBlobRef, "%v", err)
	case err != nil:
		return nil, 0, nil, api.Errorf(api.CodeBlobFailed, "%v", err)
	}
	return content, size, nil, nil
}
