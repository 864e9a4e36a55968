package commands

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
)

// App holds what all commands share: their output and their common flags.
type App struct {
	command.Output
	connection connection
	// Timeout bounds the wait for an answer of the API.
	Timeout time.Duration
	// LocalTokens lists the files in which controllers on this machine keep their tokens.
	LocalTokens []string
}

// Flags defines the flags that all commands have.
func (a *App) Flags(f *pflag.FlagSet) {
	a.connection.define(f)
	f.DurationVar(&a.Timeout, "timeout", 30*time.Second, "how long to wait for an answer of the API")
}

// Client returns a client of the controller that the flags, the environment or the context name.
// Its errors say which flag to set.
func (a *App) Client() (*client.Client, error) {
	if err := a.useContext(); err != nil {
		return nil, err
	}
	return a.connect()
}

// connect returns a client of the controller at a.connection.
func (a *App) connect() (*client.Client, error) {
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := a.tls()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Server: a.connection.at.Server, Token: token, TLS: tlsConfig, Timeout: a.Timeout})
}
