package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/tailscale/hujson"
	"golang.org/x/sys/unix"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// configurationLimit is more than anybody writes by hand.
const configurationLimit = 1 << 20

// notInFile are the flags that a configuration file cannot set: those that are about the file itself.
var notInFile = []string{"config", "print-config", "help", "version"}

// setting is one member of a configuration file: what its flag is set to, in order.
type setting struct {
	Name   string
	Values []string
}

// parseConfiguration reads a configuration: one JSON object, with comments and trailing commas, whose members are named as the
// flags are. It looks at the whole file and sets nothing. What it returns can be applied: every name is a flag's, and
// every value is one that its flag accepts. Unknown and repeated members, null, and what follows the object are refused.
func parseConfiguration(text []byte, fresh func() *pflag.FlagSet) ([]setting, error) {
	plain, err := hujson.Standardize(bytes.Clone(text)) // it writes over what it is given
	if err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(plain, &members); err != nil { // refuses repeated names
		return nil, err
	}
	if members == nil {
		return nil, errors.New("want an object")
	}
	var settings []setting
	flags := fresh()
	for name, value := range members {
		flag := flags.Lookup(name)
		if flag == nil || slices.Contains(notInFile, name) {
			return nil, fmt.Errorf("%q is no setting: they are named as the flags of stockaded are", name)
		}
		values, err := valuesOf(flag, value)
		if err != nil {
			return nil, quoting(flag, err)
		}
		settings = append(settings, setting{name, values})
	}
	slices.SortFunc(settings, func(a, b setting) int { return strings.Compare(a.Name, b.Name) })
	return settings, applySettings(flags, settings, nil)
}

// inOrder refuses what no flag means, although its type has it: less than nothing, and a word that is none.
func inOrder(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "duration":
			if strings.HasPrefix(f.Value.String(), "-") && err == nil {
				err = fmt.Errorf("%s: %s is less than nothing", f.Name, f.Value)
			}
		}
	})
	live := flags.Lookup("policy-live").Value.String()
	if err == nil && !slices.Contains([]string{"", api.LiveKeep, api.LiveNarrow, api.LiveTerminate}, live) {
		err = fmt.Errorf("policy-live: %q is neither keep, narrow nor terminate", live)
	}
	return err
}

// quoting is an error about a setting. What is wrong with a value quotes it, and some are nobody's to read in a log.
func quoting(flag *pflag.Flag, err error) error {
	if kindOf(flag) == api.SettingEndpoint {
		return fmt.Errorf("%s: not a value that it takes, and not quoted", flag.Name)
	}
	return fmt.Errorf("%s: %w", flag.Name, err)
}

// valuesOf is what a member says, as its flag would have it on a command line: of numbers the digits.
func valuesOf(flag *pflag.Flag, value jsontext.Value) ([]string, error) {
	scalar := func(v jsontext.Value) (string, error) {
		switch v.Kind() {
		case '"':
			text, err := jsontext.AppendUnquote(nil, v)
			return string(text), err
		case '0', 't', 'f':
			return string(v), nil
		}
		return "", fmt.Errorf("want a value and not %s", v)
	}
	_, repeated := flag.Value.(pflag.SliceValue)
	if !repeated {
		text, err := scalar(value)
		return []string{text}, err
	}
	var elements []jsontext.Value
	if err := json.Unmarshal(value, &elements); err != nil || value.Kind() != '[' {
		return nil, fmt.Errorf("want a list and not %s", value)
	}
	values := make([]string, len(elements))
	for i, e := range elements {
		text, err := scalar(e)
		if err != nil {
			return nil, err
		}
		values[i] = text
	}
	return values, nil
}

// applySettings sets the flags, but those that hold what is said elsewhere.
func applySettings(flags *pflag.FlagSet, settings []setting, keep func(name string) bool) error {
	for _, s := range settings {
		if keep != nil && keep(s.Name) {
			continue
		}
		flag := flags.Lookup(s.Name)
		if err := flags.SetAnnotation(s.Name, byFile, []string{}); err != nil {
			return err
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(s.Values); err != nil {
				return quoting(flag, err)
			}
			continue
		}
		if err := flag.Value.Set(s.Values[0]); err != nil {
			return quoting(flag, err)
		}
	}
	return nil
}

// configure completes the flags from the file that --config names. What the command line says holds over the environment, and that
// over the file.
func configure(cmd *cobra.Command, name string) error {
	if name == "" {
		return nil
	}
	text, err := readConfiguration(name)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	settings, err := parseConfiguration(text, serveFlags)
	if err != nil {
		return fmt.Errorf("configuration %s: %w", name, err)
	}
	return applySettings(cmd.Flags(), settings, func(flag string) bool {
		return cmd.Flags().Changed(flag) || flag == "socket" && os.Getenv("STOCKADE_SOCKET") != ""
	})
}

// readConfiguration reads the file, and refuses one that somebody else than root and this user could have written.
func readConfiguration(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", name, err)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("%s belongs to uid %d with mode %#o: others than root and this user could have written it", name, st.Uid, st.Mode&0o7777)
	}
	text, err := io.ReadAll(io.LimitReader(f, configurationLimit+1))
	if err == nil && len(text) > configurationLimit {
		err = fmt.Errorf("%s is larger than %d bytes", name, configurationLimit)
	}
	return text, err
}

// serveFlags are the flags of stockaded, as nobody has set them.
func serveFlags() *pflag.FlagSet {
	var c config
	return c.flags()
}

// printConfiguration writes a configuration in which every setting stands with what it means and its default, as a comment.
func printConfiguration(w io.Writer) error {
	var out bytes.Buffer
	out.WriteString(`// The configuration of stockaded. Every member is named as the flag is, a flag holds over it, and what is
// not named here is refused. What is commented out is the default. JSON, with comments and trailing commas.
{
`)
	serveFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || slices.Contains(notInFile, f.Name) {
			return
		}
		fmt.Fprintf(&out, "  // %s\n  // %q: %s,\n\n", f.Usage, f.Name, literal(f))
	})
	out.WriteString("}\n")
	_, err := w.Write(out.Bytes())
	return err
}

// literal is the default of a flag as JSON.
func literal(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64", "bool":
		return f.DefValue
	}
	if _, ok := f.Value.(pflag.SliceValue); ok {
		return f.DefValue // "[]"
	}
	return fmt.Sprintf("%q", f.DefValue)
}
