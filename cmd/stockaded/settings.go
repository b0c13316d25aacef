package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// settingKinds are the settings whose values are texts, and what they are. All others are words: numbers, times, yes and no. A
// setting whose value can let somebody in somewhere is an endpoint, and is neither told nor quoted.
var settingKinds = map[string]api.SettingKind{
	"state": api.SettingPath, "socket": api.SettingPath, "policy": api.SettingPath, "policy-key": api.SettingPath, "ceiling": api.SettingPath,
	"runner": api.SettingPath, "runner-binary": api.SettingPath, "init-binary": api.SettingPath, "ripgrep": api.SettingPath,
	"config": api.SettingPath, "cgroup-parent": api.SettingPath,
	"user": api.SettingName, "metrics": api.SettingAddress, "otlp-endpoint": api.SettingEndpoint,
	"policy-watch": api.SettingWord, "policy-live": api.SettingWord, "log-format": api.SettingWord,
}

// heeded are the variables of the environment that the program, or a library of it, looks at.
var heeded = []string{"STOCKADE_SOCKET", "OTEL_", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOMAXPROCS", "GOTRACEBACK", "LISTEN_", "NOTIFY_SOCKET", "WATCHDOG_"}

// byFile marks a flag that the configuration has set.
const byFile = "by-file"

// settingsOf is what flags, which file and command line have set, say to whoever may ask. Of the environment it is the names.
func settingsOf(flags *pflag.FlagSet, environment []string) api.Settings {
	var told api.Settings
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || slices.Contains([]string{"print-config", "help", "version"}, f.Name) {
			return
		}
		s := api.Setting{Name: f.Name, Kind: kindOf(f), From: "default"}
		switch {
		case f.Changed:
			s.From = "flag"
		case f.Annotations[byFile] != nil:
			s.From = "file"
		case f.Name == "socket" && f.DefValue != defaultSocket:
			s.From = "environment"
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if v == "" {
				continue
			}
			if s.Kind == api.SettingEndpoint {
				v = schemeOf(v)
			}
			s.Values = append(s.Values, v)
		}
		told.Settings = append(told.Settings, s)
	})
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if slices.ContainsFunc(heeded, func(h string) bool { return name == h || strings.HasSuffix(h, "_") && strings.HasPrefix(name, h) }) {
			told.Environment = append(told.Environment, name)
		}
	}
	slices.Sort(told.Environment)
	return told
}

// kindOf is what a flag's values are. A text of which nobody has said what it is could be anything.
func kindOf(f *pflag.Flag) api.SettingKind {
	if kind, ok := settingKinds[f.Name]; ok {
		return kind
	}
	switch f.Value.Type() {
	case "string", "stringArray", "stringSlice":
		return api.SettingEndpoint
	}
	return api.SettingWord
}

// schemeOf is what of an endpoint is told.
func schemeOf(endpoint string) string {
	if u, err := url.Parse(endpoint); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return u.Scheme + ":…"
	}
	return "…"
}
