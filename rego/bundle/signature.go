package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	opa "github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/util"
)

// Key is a public key that may vouch for a bundle: Ed25519 (EdDSA in OPA's words), ECDSA with P-256 or P-384 (ES256, ES384) or
// RSA of 2048 bits and more (RS256). Which algorithm it is used with is a matter of the key and of nothing that a bundle
// says. There are no shared secrets: who could verify could sign.
type Key struct {
	ID        string // sha256:<hex> of its DER form
	Algorithm string
	config    *opa.KeyConfig
}

// ParseKey reads a public key in PEM.
func ParseKey(text []byte) (Key, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return Key{}, errors.New("public key: want one block of type PUBLIC KEY")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("public key: %w", err)
	}
	return keyOf(public)
}

func keyOf(public any) (Key, error) {
	alg, err := algorithmOf(public)
	if err != nil {
		return Key{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Key{}, fmt.Errorf("public key: %w", err)
	}
	sum := sha256.Sum256(der)
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return Key{ID: "sha256:" + hex.EncodeToString(sum[:]), Algorithm: alg, config: &opa.KeyConfig{Key: string(text), Algorithm: alg}}, nil
}

func algorithmOf(public any) (string, error) {
	switch k := public.(type) {
	case ed25519.PublicKey:
		return "EdDSA", nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return "ES256", nil
		case elliptic.P384():
			return "ES384", nil
		}
	case *rsa.PublicKey:
		if k.N.BitLen() >= 2048 {
			return "RS256", nil
		}
	}
	return "", errors.New("key: want Ed25519, ECDSA with P-256 or P-384, or RSA of at least 2048 bits")
}

// GenerateKey makes an Ed25519 key, both halves in PEM.
func GenerateKey() (private, public []byte, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return nil, nil, err
	}
	key, err := keyOf(pub)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), []byte(key.config.Key), nil
}

// hashes are those that a signature may name files by. OPA knows weaker ones.
var hashes = []string{"SHA-256", "SHA-384", "SHA-512"}

// verify returns which key signed files. The signature names each of them with its digest, and nothing that is not there:
// what is added, changed or left out is another bundle.
func verify(files map[string][]byte, keys []Key) (id string, err error) {
	text, ok := files[signaturesFile]
	if !ok {
		return "", fmt.Errorf("it has no %s, and only what is signed is taken: %w", signaturesFile, ErrUntrusted)
	}
	var config opa.SignaturesConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("%s: %w", signaturesFile, err)
	}
	if config.Plugin != "" && config.Plugin != "_default" { // of a program's own, which OPA lets it bring along
		return "", fmt.Errorf("%s: the verifier %.100q is unknown: %w", signaturesFile, config.Plugin, ErrUntrusted)
	}
	// Each key is tried: what the token says of its key is the word of whoever made it.
	var signed map[string]opa.FileInfo
	var failed []error
	for _, k := range keys {
		signed, err = opa.VerifyBundleSignature(config, opa.NewVerificationConfig(map[string]*opa.KeyConfig{k.ID: k.config}, k.ID, "", nil))
		if err == nil {
			id = k.ID
			break
		}
		failed = append(failed, err)
	}
	if id == "" {
		return "", fmt.Errorf("%s: %w: %w", signaturesFile, ErrUntrusted, errors.Join(failed...))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name == signaturesFile {
			continue
		}
		if err := verifyFile(name, files[name], signed); err != nil {
			return "", fmt.Errorf("%s: %w: %w", signaturesFile, ErrUntrusted, err)
		}
	}
	maps.DeleteFunc(signed, func(name string, _ opa.FileInfo) bool { return hidden(name) }) // of a directory they are not read
	for _, name := range slices.Sorted(maps.Keys(signed)) {
		return "", fmt.Errorf("%s: %.200q is signed, and not there: %w", signaturesFile, name, ErrUntrusted)
	}
	return id, nil
}

// verifyFile compares a file with what was signed, and takes it off the list.
func verifyFile(name string, text []byte, signed map[string]opa.FileInfo) error {
	if info, ok := signed[name]; ok && !slices.Contains(hashes, info.Algorithm) {
		return fmt.Errorf("%s: the digest %.50q is not strong enough", name, info.Algorithm)
	}
	// OPA digests JSON by what it means. Of two members with one name only the last is in that; so there is one.
	if opa.IsStructuredDoc(name) && !jsontext.Value(text).IsValid() {
		return fmt.Errorf("%s is not JSON, or has a member twice", name)
	}
	return opa.VerifyBundleFile(name, *bytes.NewBuffer(text), signed)
}

// Sign makes a signed bundle of a policy: a tarball, the same for the same policy, number and key. key is a private key in PEM, of
// the kinds of [Key].
func Sign(policy fs.FS, number int64, key []byte) (tarball []byte, id string, err error) {
	if number < 1 {
		return nil, "", fmt.Errorf("sign: revision %d: the first is 1", number)
	}
	public, err := publicOf(key)
	if err != nil {
		return nil, "", fmt.Errorf("sign: %w", err)
	}
	files := map[string][]byte{}
	err = fs.WalkDir(policy, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !relevant(name) || name == manifestFile {
			return err
		}
		files[name], err = fs.ReadFile(policy, name)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("sign: %w", err)
	}
	version := 1
	manifest := opa.Manifest{Revision: strconv.FormatInt(number, 10), Roots: &[]string{""}, RegoVersion: &version}
	if files[manifestFile], err = json.Marshal(manifest, json.Deterministic(true)); err != nil {
		return nil, "", fmt.Errorf("sign: %w", err)
	}
	if files[signaturesFile], err = sign(files, key, public); err != nil {
		return nil, "", fmt.Errorf("sign: %w", err)
	}
	if tarball, err = packTarball(files); err != nil {
		return nil, "", fmt.Errorf("sign: %w", err)
	}
	return tarball, public.ID, nil
}

func publicOf(private []byte) (Key, error) {
	block, _ := pem.Decode(private)
	if block == nil || block.Type != "PRIVATE KEY" {
		return Key{}, errors.New("private key: want a block of type PRIVATE KEY (PKCS #8)")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("private key: %w", err)
	}
	signer, ok := k.(crypto.Signer)
	if !ok {
		return Key{}, errors.New("private key: it cannot sign")
	}
	return keyOf(signer.Public())
}

// sign makes the signatures file of files, as `opa sign` does.
func sign(files map[string][]byte, private []byte, public Key) ([]byte, error) {
	h, err := opa.NewSignatureHasher(opa.SHA256)
	if err != nil {
		return nil, err
	}
	var list []opa.FileInfo
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var value any = files[name]
		if opa.IsStructuredDoc(name) {
			value = nil
			if err := decodeNumbers(files[name], &value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		sum, err := h.HashFile(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, opa.NewFile(name, hex.EncodeToString(sum), string(opa.SHA256)))
	}
	token, err := opa.GenerateSignedToken(list, opa.NewSigningConfig(string(private), public.Algorithm, ""), public.ID)
	if err != nil {
		return nil, err
	}
	return json.Marshal(opa.SignaturesConfig{Signatures: []string{token}})
}

// packTarball writes files as a gzipped tar archive.
func packTarball(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decodeNumbers reads JSON as OPA does to digest it: numbers keep their digits.
func decodeNumbers(text []byte, into *any) error {
	if !jsontext.Value(text).IsValid() {
		return errors.New("not JSON, or a member is there twice")
	}
	return util.UnmarshalJSON(text, into)
}
