package api

import "fmt"

// Code is a stable, machine-readable error or denial code. Codes are never
// reused for another meaning.
type Code string

// Error is an error that a caller sees: a stable code and a sentence.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf returns an *Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorBody is the body of every answer that is not a receipt or a document.
type ErrorBody struct {
	Error Error `json:"error"`
}
