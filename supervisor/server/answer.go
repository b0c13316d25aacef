package server

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// fail answers with an error: a refusal that the caller may see as it is, anything else
// as a code without a reason, which goes to the log (T168).
func (c *call) fail(err error) {
	if c.r.Context().Err() != nil {
		return // nobody is there
	}
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		c.server.options.Log.Error("answer", "method", c.r.Method, "path", c.r.URL.Path, "error", err)
		e = api.Errorf(api.CodeInternalError, "the supervisor failed; its log says more")
	}
	c.write(max(e.Code.Status(), 400), api.ErrorBody{Error: *e, Gone: e.Gone})
}

// write answers with one document, which the reader takes within the patience of the server.
func (c *call) write(status int, v any) {
	c.control.SetWriteDeadline(time.Now().Add(c.server.options.WriteTimeout))
	writeJSON(c.w, status, v)
}

// receiptStatus is the HTTP status of an outcome.
func receiptStatus(r *api.Receipt) int {
	switch r.Outcome {
	case api.OutcomeOK:
		return http.StatusOK
	case api.OutcomeDenied:
		return http.StatusForbidden
	}
	if status := r.ErrorCode.Status(); status >= 400 {
		return status
	}
	return http.StatusInternalServerError
}

func writeError(w http.ResponseWriter, e *api.Error) {
	writeJSON(w, max(e.Code.Status(), 400), api.ErrorBody{Error: *e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := api.Encode(v)
	if err != nil { // text that is not UTF-8; nothing here is made of such
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	w.Write(body)
}
