package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/cli/doctor"
	"github.com/sluice-net/sluice/controller"
)

func statusCommand(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the controller at a glance",
		Example: `  sluice status
  sluice status --server https://controller:8443 --ca ca.crt --token-file token --json`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s controller.Status
			return app.get(cmd, api.Prefix+"/status", &s, func(w io.Writer) {
				fmt.Fprintf(w, "version\t%s\n", s.Version)
				fmt.Fprintf(w, "running since\t%s (start number %d)\n", s.Started.Local().Format(time.DateTime), s.Starts)
				fmt.Fprintf(w, "switches connect to\t%s\n", strings.Join(s.OpenFlow, " "))
				fmt.Fprintf(w, "services\t%s\n", strings.Join(s.Services, " "))
				fmt.Fprintf(w, "packet-in chain\t%s\n", strings.Join(s.Chain, ", "))
				fmt.Fprintf(w, "network\t%d switches, %d links, %d hosts\n", s.Switches, s.Links, s.Hosts)
				if s.Store.Writable {
					fmt.Fprintf(w, "store\t%s\n", s.Store.Kind)
				} else {
					fmt.Fprintf(w, "store\t%s, accepts no writes: %s\n", s.Store.Kind, s.Store.Reason)
				}
				for _, c := range s.Certificates {
					fmt.Fprintf(w, "certificate %s\t%s\n", c.Key, certificateState(c, time.Now()))
				}
				fmt.Fprintf(w, "latest event\t%d\n", s.LastEvent)
				for _, e := range s.Errors {
					fmt.Fprintf(w, "error in %s\t%s\n", e.Service, e.Error)
				}
			})
		},
	}
}

// certificateState says when a certificate ends, and what to do if that is soon.
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
