package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a document.
const (
	MaxBody  = 8 << 20 // bytes
	MaxDepth = 32      // nested objects and arrays; the deepest request needs 7
)

// Decode reads exactly one JSON document of type T from data and refuses whatever
// two readers could understand differently: unknown, doubled or wrongly cased
// members, a null where a value belongs, a number that is not an exact integer of
// its type, invalid UTF-8, and anything after the document. It does not judge
// meaning: see [Request.Validate].
func Decode[T any](data []byte) (T, *Error) {
	var v T
	if len(data) > MaxBody {
		return v, Errorf(CodeTooLarge, "the document has %d bytes, the limit is %d", len(data), MaxBody)
	}
	if err := checkDepth(data); err != nil {
		return v, err
	}
	if err := json.Unmarshal(data, &v, strict); err != nil {
		var zero T
		return zero, wireError(err)
	}
	return v, nil
}

// Encode returns the canonical bytes of v: members in the order of the type, map
// keys sorted, no white space. It fails only on text that is not UTF-8.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Write is [Encode] to w, for what is too large to be held as bytes.
func Write(w io.Writer, v any) error {
	if err := json.MarshalWrite(w, v, json.Deterministic(true)); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	return nil
}

// strict is what Decode adds to the defaults of the json package, which already
// refuses doubled names, invalid UTF-8, trailing data and inexact integers, and
// compares names exactly.
var strict = json.JoinOptions(
	json.RejectUnknownMembers(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(
		notNull,
		json.UnmarshalFromFunc(unmarshalContent),
		json.UnmarshalFromFunc(unmarshalPatchText),
	)),
)

var notNull = json.UnmarshalFromFunc(refuseNull)

var errNull = errors.New("null is not a value here; leave the member out")

// refuseNull sees every value before its own type does. Null would silently become
// the zero value, and an element of argv the empty string.
func refuseNull(dec *jsontext.Decoder, v any) error {
	if dec.PeekKind() != 'n' {
		return errors.ErrUnsupported
	}
	if _, ok := v.(*EnvValue); ok { // there it means: unset
		return errors.ErrUnsupported
	}
	return errNull
}

// checkDepth runs over the tokens once before anything is built from them. Syntax
// errors are left to the decoder proper, which finds the same ones.
func checkDepth(data []byte) *Error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return nil
		}
		if dec.StackDepth() > MaxDepth {
			return Errorf(CodeTooDeep, "%s: nested deeper than %d", pointer(dec.StackPointer()), MaxDepth)
		}
	}
}

// wireError turns what the json package says into a stable code, the place in the
// document, and a sentence without Go's type names.
func wireError(err error) *Error {
	var at jsontext.Pointer
	for {
		// A variant is decoded from its own bytes, so pointers nest.
		nested, ok := errors.AsType[*variantError](err)
		if !ok {
			break
		}
		at, err = at+nested.at, nested.err
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at += e.JSONPointer
		switch {
		case errors.Is(e, jsontext.ErrDuplicateName):
			return Errorf(CodeDuplicateMember, "%s: the member occurs twice", pointer(at))
		case errors.Is(e, io.ErrUnexpectedEOF):
			return Errorf(CodeDecodeError, "%s: the document ends too early", pointer(at))
		}
		return Errorf(CodeDecodeError, "%s: %v at byte %d", pointer(at), e.Err, e.ByteOffset)
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		at += e.JSONPointer
		switch {
		case errors.Is(e, json.ErrUnknownName):
			return Errorf(CodeUnknownMember, "%s: no such member; names are case-sensitive", pointer(at))
		case errors.Is(e, errNull):
			return Errorf(CodeDecodeError, "%s: %v", pointer(at), errNull)
		case e.Err != nil:
			return Errorf(CodeDecodeError, "%s: a JSON %s does not fit here: %v", pointer(at), kindName(e.JSONKind), e.Err)
		}
		return Errorf(CodeDecodeError, "%s: a JSON %s does not fit here", pointer(at), kindName(e.JSONKind))
	}
	return Errorf(CodeDecodeError, "%s: %v", pointer(at), err)
}

func pointer(p jsontext.Pointer) string {
	const most = 200 // a member name can be as long as the document
	if p == "" {
		return "/"
	}
	if len(p) > most {
		return string(bytes.ToValidUTF8([]byte(p[:most]), nil)) + "…"
	}
	return string(p)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case '0':
		return "number"
	case 't', 'f':
		return "boolean"
	}
	return "value"
}
