package commands

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-net/sluice/config"
)

const (
	// ContextsVariable is the environment variable that names the operator's file of contexts.
	ContextsVariable = "SLUICE_CONTEXTS"
	// ContextsFileIs describes the location of the file of contexts, for the reference.
	ContextsFileIs = "`~/.config/sluice/contexts.yaml` unless `SLUICE_CONTEXTS` names another"
)

// Contexts reads the operator's file of contexts. A user without a home directory has none.
func Contexts() (*config.Contexts, error) {
	file := os.Getenv(ContextsVariable)
	if dir, err := os.UserConfigDir(); file == "" && err == nil {
		file = filepath.Join(dir, "sluice", "contexts.yaml")
	}
	return config.LoadContexts(file)
}

// useContext takes the connection from a context. A context that was asked for replaces the
// environment, and flags override it. The current context is used only if neither flags nor the
// environment say anything about the connection. So the credentials of one controller are never
// sent to another one because a variable was left set.
func (a *App) useContext() error {
	if a.connection.context == "" && a.connection.anyGiven() {
		return nil
	}
	all, err := Contexts()
	if err != nil {
		return err
	}
	name := cmp.Or(a.connection.context, all.Current)
	if name == "" {
		return nil
	}
	one, err := all.Get(name)
	if err != nil {
		return err
	}
	a.connection.context = name
	from := settingsOf(&one)
	for i, s := range settingsOf(&a.connection.at) {
		if !a.connection.flags.Changed(s.flag) {
			*s.to = *from[i].to
		}
	}
	return nil
}

// anyGiven reports whether a flag or the environment says anything about the connection.
func (c *connection) anyGiven() bool {
	if os.Getenv("SLUICE_TOKEN") != "" {
		return true
	}
	return slices.ContainsFunc(settingsOf(&c.at), func(s setting) bool { return c.flags.Changed(s.flag) || os.Getenv(s.env) != "" })
}
