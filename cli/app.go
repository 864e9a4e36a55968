package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller"
)

// App is what commands share: where they write, and the flags that all of
// them have.
type App struct {
	command.Output
	connection
	timeout time.Duration
	extras  []Extra
	// localTokens are the files in which controllers on this machine keep their tokens.
	localTokens []string
}

// Extra is what a program of your own has beside everything of Sluice.
type Extra struct {
	// Service is one more service of the controller; nil for none.
	Service controller.Constructor
	// Commands makes its commands; nil for none.
	Commands func(*App) []*cobra.Command
}

// Client returns a client of the controller that the flags, the environment or the
// context name. Errors say which flag to set.
func (a *App) Client() (*client.Client, error) {
	if err := a.useContext(); err != nil {
		return nil, err
	}
	return a.connect()
}

// connect returns a client of the controller that the connection names.
func (a *App) connect() (*client.Client, error) {
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := a.tls()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Server: a.at.Server, Token: token, TLS: tlsConfig, Timeout: a.timeout})
}
