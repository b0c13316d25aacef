package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// Redact returns a copy of r in which no secret value is left: each is replaced by
// "hmac-sha256:<hex>" under salt. The copy is what policy judges and what the
// journal keeps; equal secrets stay recognisable as equal, to the holder of the salt
// alone, and a guess cannot be checked without it. r itself is not touched, and what is
// not secret may be shared between the two.
func (r Request) Redact(salt []byte) Request {
	if r.Open != nil && r.Open.Target.Local != nil {
		open, local := *r.Open, *r.Open.Target.Local
		local.Env = redactEnv(local.Env, salt)
		open.Target.Local = &local
		r.Open = &open
	}
	if r.Exec != nil {
		exec := *r.Exec
		exec.EnvPatch = redactEnv(exec.EnvPatch, salt)
		exec.Stdin = redactStdin(exec.Stdin, salt)
		r.Exec = &exec
	}
	if r.Input != nil {
		input := *r.Input
		input.Data = redactStdin(input.Data, salt)
		r.Input = &input
	}
	if r.Keys != nil {
		keys := *r.Keys
		keys.Data = redactStdin(keys.Data, salt)
		r.Keys = &keys
	}
	if r.File != nil && r.File.Write != nil && r.File.Write.Content.SecretText != nil {
		tool, write := *r.File, *r.File.Write
		c := &write.Content
		c.SecretText, c.SecretDigest = nil, digest(c.SecretText.Text, salt)
		tool.Write = &write
		r.File = &tool
	}
	return r
}

// Secrets are the values that [Request.Redact] takes out of r.
func (r *Request) Secrets() []string {
	var secrets []string
	env := func(values map[string]EnvValue) {
		for _, v := range values {
			if v.Secret {
				secrets = append(secrets, v.Text)
			}
		}
	}
	stdin := func(s *Stdin) {
		if s != nil && s.SecretText != nil {
			secrets = append(secrets, s.SecretText.Text)
		}
	}
	switch {
	case r.Open != nil && r.Open.Target.Local != nil:
		env(r.Open.Target.Local.Env)
	case r.Exec != nil:
		env(r.Exec.EnvPatch)
		stdin(r.Exec.Stdin)
	case r.Input != nil:
		stdin(r.Input.Data)
	case r.Keys != nil:
		stdin(r.Keys.Data)
	case r.File != nil && r.File.Write != nil && r.File.Write.Content.SecretText != nil:
		secrets = append(secrets, r.File.Write.Content.SecretText.Text)
	}
	return secrets
}

// Redacted reports whether a secret was taken out of r: what is left cannot be carried out.
func (r *Request) Redacted() bool {
	secret := func(env map[string]EnvValue) bool {
		for _, v := range env {
			if v.SecretDigest != "" {
				return true
			}
		}
		return false
	}
	switch {
	case r.Open != nil && r.Open.Target.Local != nil:
		return secret(r.Open.Target.Local.Env)
	case r.Exec != nil:
		return secret(r.Exec.EnvPatch) || r.Exec.Stdin != nil && r.Exec.Stdin.SecretDigest != ""
	case r.Input != nil:
		return r.Input.Data != nil && r.Input.Data.SecretDigest != ""
	case r.Keys != nil:
		return r.Keys.Data != nil && r.Keys.Data.SecretDigest != ""
	case r.File != nil && r.File.Write != nil:
		return r.File.Write.Content.SecretDigest != ""
	}
	return false
}

func redactStdin(s *Stdin, salt []byte) *Stdin {
	if s == nil || s.SecretText == nil {
		return s
	}
	redacted := *s
	redacted.SecretText, redacted.SecretDigest = nil, digest(s.SecretText.Text, salt)
	return &redacted
}

func redactEnv(env map[string]EnvValue, salt []byte) map[string]EnvValue {
	if env == nil {
		return nil
	}
	out := make(map[string]EnvValue, len(env))
	for name, v := range env {
		if v.Secret {
			v = EnvValue{SecretDigest: digest(v.Text, salt)}
		}
		out[name] = v
	}
	return out
}

func digest(secret string, salt []byte) string {
	mac := hmac.New(sha256.New, salt)
	mac.Write([]byte(secret))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}
