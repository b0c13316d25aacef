package api

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Variants have one stated form, {"arm": {…}}, which is the plain encoding of a
// struct with one pointer per arm. On input the canonical form of agent-os,
// {"$tag": "arm", "$value": {…}}, is accepted and means the same bytes from then on.

// UnmarshalJSONFrom accepts both forms, and keeps the name of an arm that this
// version does not know.
func (t *Target) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Target
	v, err := readVariant(dec)
	if err != nil {
		return err
	}
	if v.arm != "" && v.arm != "local" {
		t.Unknown = v.arm
		return nil
	}
	return v.unmarshal(dec, (*plain)(t))
}

// MarshalJSONTo writes the stated form.
func (t Target) MarshalJSONTo(enc *jsontext.Encoder) error {
	type plain Target
	if t.Unknown != "" {
		return json.MarshalEncode(enc, map[string]struct{}{t.Unknown: {}})
	}
	return json.MarshalEncode(enc, plain(t))
}

// UnmarshalJSONFrom accepts both forms.
func (r *Root) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Root
	return unmarshalVariant(dec, (*plain)(r))
}

// UnmarshalJSONFrom accepts both forms.
func (s *Stdin) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Stdin
	return unmarshalVariant(dec, (*plain)(s))
}

// UnmarshalJSONFrom accepts both forms.
func (o *Output) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Output
	return unmarshalVariant(dec, (*plain)(o))
}

func unmarshalVariant(dec *jsontext.Decoder, plain any) error {
	v, err := readVariant(dec)
	if err != nil {
		return err
	}
	return v.unmarshal(dec, plain)
}

// variant is one value in its stated form.
type variant struct {
	at   jsontext.Pointer // of the value in the document
	arm  string           // name of the first member; "" when there is none
	json []byte
}

// readVariant reads the next value, which must be an object, and brings it into the
// stated form.
func readVariant(dec *jsontext.Decoder) (variant, error) {
	raw, err := dec.ReadValue()
	if err != nil {
		return variant{}, err
	}
	v := variant{at: dec.StackPointer(), json: raw}
	if raw.Kind() != '{' {
		return v, &json.SemanticError{JSONKind: raw.Kind(), Err: fmt.Errorf("an object with one arm is expected")}
	}
	members := jsontext.NewDecoder(bytes.NewReader(raw))
	members.ReadToken() // {; the value is known to be well formed
	if name, err := members.ReadToken(); err == nil && name.Kind() == '"' {
		v.arm = name.String()
	}
	if v.arm != "$tag" && v.arm != "$value" {
		return v, nil
	}
	var tagged struct {
		Tag   string         `json:"$tag"`
		Value jsontext.Value `json:"$value"`
	}
	if err := json.Unmarshal(raw, &tagged, json.RejectUnknownMembers(true), json.WithUnmarshalers(notNull)); err != nil {
		return v, &variantError{v.at, err}
	}
	if tagged.Value == nil {
		tagged.Value = jsontext.Value("{}") // an arm without parameters
	}
	v.arm = tagged.Tag
	v.json, err = json.Marshal(map[string]jsontext.Value{v.arm: tagged.Value})
	return v, err
}

// unmarshal stores the value into a pointer to the plain struct of its arms.
func (v variant) unmarshal(dec *jsontext.Decoder, plain any) error {
	if err := json.Unmarshal(v.json, plain, dec.Options()); err != nil {
		return &variantError{v.at, err}
	}
	return nil
}

// variantError is an error inside the value of a variant, whose pointers start there.
type variantError struct {
	at  jsontext.Pointer
	err error
}

func (e *variantError) Error() string { return fmt.Sprintf("%s: %v", e.at, e.err) }

// EnvValue is "text", {"secret": "text"}, {"secret_digest": "…"} or null.
type envObject struct {
	Secret       *string `json:"secret,omitzero"`
	SecretDigest string  `json:"secret_digest,omitempty"`
}

// UnmarshalJSONFrom reads any of the four forms.
func (v *EnvValue) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*v = EnvValue{}
	switch dec.PeekKind() {
	case 'n':
		_, err := dec.ReadToken()
		v.Unset = true
		return err
	case '{':
		var o envObject
		if err := json.UnmarshalDecode(dec, &o); err != nil {
			return err
		}
		if (o.Secret == nil) == (o.SecretDigest == "") {
			return &json.SemanticError{JSONKind: '{', Err: fmt.Errorf("exactly one of secret and secret_digest is expected")}
		}
		v.SecretDigest = o.SecretDigest
		if o.Secret != nil {
			v.Text, v.Secret = *o.Secret, true
		}
		return nil
	}
	return json.UnmarshalDecode(dec, &v.Text)
}

// MarshalJSONTo writes the form that UnmarshalJSONFrom reads back.
func (v EnvValue) MarshalJSONTo(enc *jsontext.Encoder) error {
	switch {
	case v.Unset:
		return enc.WriteToken(jsontext.Null)
	case v.SecretDigest != "":
		return json.MarshalEncode(enc, envObject{SecretDigest: v.SecretDigest})
	case v.Secret:
		return json.MarshalEncode(enc, envObject{Secret: &v.Text})
	}
	return enc.WriteToken(jsontext.String(v.Text))
}
