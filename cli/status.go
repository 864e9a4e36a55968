package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/doctor"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/kit/commands"
)

func statusCommand(app *commands.App) *cobra.Command {
	cmd := commands.Get(app, "status", "Show a summary of the controller's state", api.Prefix+"/status", func(w io.Writer, s controller.Status) {
		certificates, errors := s.Certificates, s.Errors
		s.Certificates, s.Errors = nil, nil
		commands.Fields(w, s)
		for _, c := range certificates {
			fmt.Fprintf(w, "certificate %s\t%s\n", c.Key, certificateState(c, time.Now()))
		}
		for _, e := range errors {
			fmt.Fprintf(w, "error in %s\t%s\n", e.Service, e.Error)
		}
	})
	cmd.Example = `  sluice status
  sluice status --server https://controller:8443 --ca ca.crt --token-file token --json`
	return cmd
}

// certificateState returns a certificate's name and the date of its expiry, and a remedy if it has
// expired or expires soon.
func certificateState(c controller.Certificate, now time.Time) string {
	if c.Expiry == nil {
		return c.Error
	}
	text := fmt.Sprintf("%s, until %s", c.Name, c.Expiry.Local().Format(time.DateOnly))
	switch left := c.Expiry.Sub(now); {
	case left < 0:
		text += ": IT HAS ENDED, renew it with \"sluice pki issue\""
	case left < doctor.Soon:
		text += fmt.Sprintf(": ENDS IN %d DAYS, renew it with \"sluice pki issue\"; no restart is needed", int(left/day))
	}
	return text
}
