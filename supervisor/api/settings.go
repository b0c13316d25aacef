package api

// LogLevels are the levels that the supervisor's log can have, the one that says most first.
var LogLevels = []string{"debug", "info", "warn", "error"}

// Settings is how the supervisor was set up, and what of it holds by now (admin.settings). What a setting holds that can let somebody in
// somewhere is not in it.
type Settings struct {
	LogLevel    string    `json:"log_level"`             // that the log has now
	Settings    []Setting `json:"settings"`              // by name
	Environment []string  `json:"environment,omitempty"` // names of the variables that it heeds and was started with
}

// Setting is one setting of the supervisor: a flag of its program, or a member of its configuration.
type Setting struct {
	Name   string      `json:"name"`
	Kind   SettingKind `json:"kind"`
	From   string      `json:"from"`             // default, file, environment or flag
	Values []string    `json:"values,omitempty"` // none where it is not set
}

// SettingKind is what the values of a setting are.
type SettingKind string

// The kinds.
const (
	SettingWord     SettingKind = "word"     // one of a list, or a number, a time or yes and no
	SettingPath     SettingKind = "path"     // of a file, a directory or a control group
	SettingName     SettingKind = "name"     // of a user
	SettingAddress  SettingKind = "address"  // unix:PATH, or a port of this machine
	SettingEndpoint SettingKind = "endpoint" // a URL, of which only the scheme is told: the rest can hold a credential
)
