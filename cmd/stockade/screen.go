package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// view is what a person at top sees. It is a value: keys and polls change it, frame shows it.
type view struct {
	by       order
	every    time.Duration
	survey   *survey // nil before the first
	selected string  // id
	top      int     // first row that is on the screen
	said     string  // of the last thing that was done
	ask      *question
	page     *page // what is inspected; nil: nothing

	trouble string // why the supervisor cannot be asked; "" when it can
	since   time.Time
}

// question is one that y answers.
type question struct {
	text string
	yes  deed
}

// page is a document that is read.
type page struct {
	title string
	lines []string
	top   int
}

// deed is what a key asks for: one of these, or nothing.
type deed struct {
	quit                bool
	show, cancel, close string
}

// typed are the keys that are more than a character.
var typed = map[string]string{
	"\x1b[A": "k", "\x1bOA": "k", "\x1b[B": "j", "\x1bOB": "j",
	"\r": "enter", "\n": "enter", "\x03": "quit", "\x1b": "back",
}

// parseTyped names the keys in what was typed; what nobody has a use for is left out.
func parseTyped(text string) (keys []string) {
	for text != "" {
		n := 1
		if text[0] == '\x1b' && len(text) >= 3 && (text[1] == '[' || text[1] == 'O') {
			n = 2
			for n < len(text)-1 && (text[n] < '@' || text[n] > '~') {
				n++
			}
			n++
		}
		key := text[:n]
		text = text[n:]
		if name, ok := typed[key]; ok {
			keys = append(keys, name)
		} else if n == 1 && key[0] > ' ' && key[0] <= '~' {
			keys = append(keys, key)
		}
	}
	return keys
}

// press takes a key, and returns what it asks for.
func (v *view) press(key string) deed {
	if key == "quit" {
		return deed{quit: true}
	}
	if q := v.ask; q != nil {
		v.ask = nil
		if key == "y" {
			v.said = "…"
			return q.yes
		}
		v.said = "nothing was done"
		return deed{}
	}
	if v.page != nil {
		switch key {
		case "j":
			v.page.top++
		case "k":
			v.page.top--
		case "q", "back", "enter":
			v.page = nil
		}
		return deed{}
	}
	v.said = ""
	at, here := v.selection()
	switch key {
	case "q":
		return deed{quit: true}
	case "c", "m", "o":
		v.by = order(key[0])
	case "j":
		v.choose(at + 1)
	case "k":
		v.choose(at - 1)
	case "enter":
		if here != nil {
			return deed{show: here.ID}
		}
	case "x":
		v.askCancel(here)
	case "X":
		v.askClose(here)
	}
	return deed{}
}

func (v *view) askCancel(s *stance) {
	switch {
	case s == nil:
	case s.session == "":
		v.said = "that is a session: X closes it, and x on an execution cancels that"
	default:
		v.ask = &question{fmt.Sprintf("cancel %s (%s)?", short(s.ID), s.Command), deed{cancel: s.ID}}
	}
}

func (v *view) askClose(s *stance) {
	if s == nil {
		return
	}
	id := s.ID
	if s.session != "" {
		id = s.session
	}
	for _, ses := range v.survey.Sessions {
		if ses.ID == id {
			v.ask = &question{fmt.Sprintf("close session %s with %d execution(s)?", short(id), len(ses.Executions)), deed{close: id}}
		}
	}
}

// rows are what can be selected.
func (v *view) rows() []*stance {
	if v.survey == nil {
		return nil
	}
	return v.survey.rows(v.by)
}

// selection is the row that is selected, and where.
func (v *view) selection() (at int, s *stance) {
	rows := v.rows()
	at = slices.IndexFunc(rows, func(s *stance) bool { return s.ID == v.selected })
	if at < 0 {
		return -1, nil
	}
	return at, rows[at]
}

// choose selects a row, or the one next to it that there is.
func (v *view) choose(at int) {
	rows := v.rows()
	if len(rows) == 0 {
		v.selected = ""
		return
	}
	v.selected = rows[min(max(at, 0), len(rows)-1)].ID
}

// show takes in how everything stands. A row stays selected while it is there; then it is the one in its place.
func (v *view) show(s *survey) {
	at, _ := v.selection()
	v.survey, v.trouble = s, ""
	if now, _ := v.selection(); now < 0 {
		v.choose(at)
	}
}

// lost notes that the supervisor cannot be asked.
func (v *view) lost(err error, at time.Time) {
	if v.trouble == "" {
		v.since = at
	}
	v.trouble = err.Error()
}

// inspect shows a document.
func (v *view) inspect(title string, lines []string) { v.page = &page{title: title, lines: lines} }

// How a line looks.
type look int

const (
	ordinary look = iota
	heading
	chosen
	faint
	warned // near a ceiling
	alarmed
)

// line is one line of the screen. Its text may have been chosen inside a sandbox; [paint] makes plain text of it.
type line struct {
	text string
	look look
}

const (
	helpText = "j/k select  Enter show  x cancel  X close  c/m/o sort  q quit"
	pageText = "j/k scroll  q back"
)

// frame is the screen: as many lines as it is high.
func (v *view) frame(width, height int, now time.Time) []line {
	if height < 4 || width < 20 {
		return append([]line{{"too small", ordinary}}, make([]line, max(0, height-1))...)
	}
	if v.page != nil {
		return v.page.frame(height)
	}
	lines := []line{v.status(now)}
	room := height - 3 // without the status, the columns and the foot
	rows := v.rows()
	if at, _ := v.selection(); at >= 0 {
		v.top = min(max(v.top, at-room+1), at)
	}
	v.top = max(0, min(v.top, len(rows)-room))
	cells := [][]string{columns}
	for _, s := range rows[v.top:min(len(rows), v.top+room)] {
		cells = append(cells, s.cells())
	}
	for i, text := range align(cells) {
		l := line{"  " + text, ordinary}
		switch {
		case i == 0:
			l.look = heading
		case rows[v.top+i-1].ID == v.selected:
			l = line{"> " + text, chosen}
		case v.trouble != "":
			l.look = faint
		case rows[v.top+i-1].near() >= 0.95:
			l.look = alarmed
		case rows[v.top+i-1].near() >= 0.80:
			l.look = warned
		}
		lines = append(lines, l)
	}
	for len(lines) < height-1 {
		lines = append(lines, line{})
	}
	return append(lines, v.foot())
}

func (v *view) status(now time.Time) line {
	switch {
	case v.trouble != "":
		return line{fmt.Sprintf("no news for %s, asking again: %s", age(int64(now.Sub(v.since))), v.trouble), alarmed}
	case v.survey == nil:
		return line{"looking…", ordinary}
	}
	executions := 0
	for _, s := range v.survey.Sessions {
		executions += len(s.Executions)
	}
	return line{fmt.Sprintf("%d sessions, %d executions, every %v, by %s", len(v.survey.Sessions), executions, v.every, orders[v.by].name), ordinary}
}

func (v *view) foot() line {
	switch {
	case v.ask != nil:
		return line{v.ask.text + " y/n", chosen}
	case v.said != "":
		return line{v.said, ordinary}
	}
	return line{helpText, faint}
}

func (p *page) frame(height int) []line {
	room := height - 2
	p.top = max(0, min(p.top, len(p.lines)-room))
	lines := []line{{p.title, heading}}
	for _, text := range p.lines[p.top:min(len(p.lines), p.top+room)] {
		lines = append(lines, line{strings.TrimSuffix(text, "\n"), ordinary})
	}
	for len(lines) < height-1 {
		lines = append(lines, line{})
	}
	return append(lines, line{pageText, faint})
}

// align puts cells under each other, but for the last.
func align(rows [][]string) (texts []string) {
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var text strings.Builder
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		texts = append(texts, text.String())
	}
	return texts
}

// What a terminal is told. A line that is too long ends at the edge.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l"
)

// looks say how a line is shown: with colours, and without.
var looks = map[look][2]string{
	ordinary: {"", ""},
	heading:  {"\x1b[1m", "\x1b[1m"},
	chosen:   {"\x1b[7m", "\x1b[7m"},
	faint:    {"\x1b[2m", "\x1b[2m"},
	warned:   {"\x1b[33m", ""},
	alarmed:  {"\x1b[31m", "\x1b[1m"},
}

// paint is a frame as a terminal takes it. Nothing of a text is anything to a terminal but text.
func paint(lines []line, colour bool) string {
	var b strings.Builder
	for i, l := range lines {
		how := looks[l.look][0]
		if !colour {
			how = looks[l.look][1]
		}
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[2K%s%s\x1b[0m", i+1, how, printable(l.text))
	}
	return b.String()
}
