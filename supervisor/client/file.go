package client

import (
	"context"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// The file tools of a session. What a tool answers is in Payload.File of the receipt, with a status of its own: an outcome of ok
// says that it answered, not that there was such a file.

// ReadFile gives the content of a file, or of a range of it.
func (c *Client) ReadFile(ctx context.Context, ask api.FileRead) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileRead, ask))
}

// WriteFile gives a file its content.
func (c *Client) WriteFile(ctx context.Context, ask api.FileWrite) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileWrite, ask))
}

// EditFile replaces text in a file.
func (c *Client) EditFile(ctx context.Context, ask api.FileEdit) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileEdit, ask))
}

// ApplyPatch changes any number of files, all or none.
func (c *Client) ApplyPatch(ctx context.Context, ask api.FilePatch) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFilePatch, ask))
}

// Grep finds the lines that a pattern matches.
func (c *Client) Grep(ctx context.Context, ask api.FileGrep) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileGrep, ask))
}

// Glob finds the files whose paths a pattern matches, newest first.
func (c *Client) Glob(ctx context.Context, ask api.FileGlob) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileGlob, ask))
}

// Stat says what is at a path.
func (c *Client) Stat(ctx context.Context, ask api.FileStat) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileStat, ask))
}

// Exists says whether there is anything at a path.
func (c *Client) Exists(ctx context.Context, ask api.FileStat) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileExists, ask))
}

// ListDir lists the names in a directory.
func (c *Client) ListDir(ctx context.Context, ask api.FileList) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileList, ask))
}

// Mkdir makes a directory.
func (c *Client) Mkdir(ctx context.Context, ask api.FileMkdir) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileMkdir, ask))
}

// Move renames a file, a directory or a link.
func (c *Client) Move(ctx context.Context, ask api.FileMove) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileMove, ask))
}

// Remove removes a file, a link or a directory.
func (c *Client) Remove(ctx context.Context, ask api.FileRemove) (*api.Receipt, error) {
	return receipt(c.named(ctx, api.OpFileRemove, ask))
}
