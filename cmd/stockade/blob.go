package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stockade-dev/stockade/supervisor/api"
)

func (c *cli) blobCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blob",
		Short: "Store and fetch content by digest",
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "put FILE|-",
		Short:   "Store a file and print its reference",
		Example: "  ref=$(stockade blob put input.tar)",
		Args:    arguments(cobra.ExactArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.blobPut(cmd.Context(), args[0]) },
	})
	var dest string
	get := &cobra.Command{
		Use:   "get REF",
		Short: "Write the content of a blob",
		Example: `  stockade blob get "$ref" > input.tar
  stockade blob get -o input.tar "$ref"`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return c.blobGet(cmd.Context(), args[0], dest) },
	}
	get.Flags().StringVarP(&dest, "output", "o", "", "file to write (default: stdout)")
	cmd.AddCommand(get)
	return cmd
}

func (c *cli) blobPut(ctx context.Context, file string) error {
	var from io.Reader = c.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return usage("%v", err)
		}
		defer f.Close()
		from = f
	}
	r, err := c.client().PutBlob(ctx, from, "")
	if err != nil {
		return err
	}
	if err := c.answer(r); err != nil {
		return err
	}
	if !c.json {
		fmt.Fprintln(c.stdout, r.Payload.Blob.BlobRef)
	}
	return nil
}

// put stores what was already read followed by the rest, and returns the reference.
func (c *cli) put(ctx context.Context, head []byte, rest io.Reader) (string, error) {
	r, err := c.client().PutBlob(ctx, io.MultiReader(bytes.NewReader(head), rest), "")
	if err != nil {
		return "", err
	}
	if err := c.settled(r); err != nil {
		return "", err
	}
	return r.Payload.Blob.BlobRef, nil
}

func (c *cli) blobGet(ctx context.Context, ref, dest string) error {
	if dest == "" {
		return c.copyBlob(ctx, ref, c.stdout)
	}
	return c.save(ctx, api.Artifact{BlobRef: ref}, dest)
}

// copyBlob writes the content of a blob, or says that it stopped short.
func (c *cli) copyBlob(ctx context.Context, ref string, to io.Writer) error {
	from, size, err := c.client().Blob(ctx, ref)
	if err != nil {
		return err
	}
	defer from.Close()
	n, err := io.Copy(to, from)
	if err != nil {
		return err
	}
	if size >= 0 && n != size {
		return fmt.Errorf("blob %s: got %d of %d bytes", ref, n, size)
	}
	return nil
}
