package workbench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/internal/durable"
	"github.com/stockade-dev/stockade/rego"
	"github.com/stockade-dev/stockade/rego/bundle"
)

// generated is the result of keygen.
type generated struct {
	Key     string `json:"key"` // id
	Private string `json:"private"`
	Public  string `json:"public"`
}

func (b *bench) keygen() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen NAME",
		Short: "Make a key that signs policies",
		Long: `keygen writes an Ed25519 key: NAME.key, which is for whoever signs and for nobody else, and
NAME.pub, which the supervisor is told to trust (stockaded --policy-key). Neither may exist.`,
		Example: `  stockade policy keygen release
  stockaded --policy /etc/stockade/policy.tar.gz --policy-key release.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			private, public, err := bundle.GenerateKey()
			if err != nil {
				return fmt.Errorf("keygen: %w", err)
			}
			key, err := bundle.ParseKey(public)
			if err != nil {
				return fmt.Errorf("keygen: %w", err)
			}
			g := generated{Key: key.ID, Private: args[0] + ".key", Public: args[0] + ".pub"}
			if _, err := os.Lstat(g.Public); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("keygen: %s is there", g.Public)
			}
			if err := durable.Create(g.Private, private, 0o600); err != nil {
				return fmt.Errorf("keygen: %w", err)
			}
			if err := durable.Create(g.Public, public, 0o644); err != nil {
				return fmt.Errorf("keygen: %w", err)
			}
			return b.print(cmd, g, func() { fmt.Fprintf(cmd.OutOrStdout(), "%s and %s: %s\n", g.Private, g.Public, g.Key) })
		},
	}
}

// signed is the result of sign.
type signed struct {
	Output string `json:"output"`
	Digest string `json:"digest"`
	Number int64  `json:"revision"`
	Key    string `json:"signed_by"`
}

func (b *bench) sign() *cobra.Command {
	var key, output string
	var number int64
	cmd := &cobra.Command{
		Use:   "sign DIR --key FILE --revision N",
		Short: "Make a signed bundle of a policy",
		Long: `sign writes a bundle in OPA's format, as opa build and opa sign do: a tarball with a manifest, whose
revision is the number, and a signature over every file. A supervisor that trusts the key takes it, and
from then on nothing with a smaller number; so each change gets the next one. What does not load is not signed.

The key is Ed25519 (keygen), ECDSA with P-256 or P-384, or RSA, in PEM (PKCS #8).`,
		Example: `  stockade policy sign my-policy --key release.key --revision 8 --output policy.tar.gz
  opa build -b . --revision 8 --signing-key release.key --signing-alg EdDSA -o policy.tar.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			private, err := os.ReadFile(key)
			if err != nil {
				return fmt.Errorf("sign: %w", err)
			}
			fsys, err := tree(args[0])
			if err != nil {
				return err
			}
			_, err = rego.ReadBundle(fsys) // its tests too: who gets it runs them
			var engine *rego.Engine
			if err == nil {
				engine, err = rego.Load(fsys, rego.Options{})
			}
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return ErrFinding
			}
			engine.Close()
			tarball, id, err := bundle.Sign(fsys, number, private)
			if err != nil {
				return err
			}
			s := signed{Output: output, Digest: engine.Digest(), Number: number, Key: id}
			if output == "-" {
				_, err := cmd.OutOrStdout().Write(tarball)
				return err
			}
			// Whole or not at all: the supervisor may be looking.
			if err := durable.Replace(filepath.Clean(output), tarball, 0o644); err != nil {
				return fmt.Errorf("sign: %w", err)
			}
			return b.print(cmd, s, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: revision %d, %s, signed by %s\n", output, number, s.Digest, id)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "file of the private key")
	f.Int64Var(&number, "revision", 0, "number of the revision: greater than any that was active")
	f.StringVarP(&output, "output", "o", "bundle.tar.gz", "file to write; - is standard output")
	for _, name := range []string{"key", "revision"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that does not exist
	}
	return cmd
}
