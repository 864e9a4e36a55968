package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/kit/commands"
)

// reconnectDelay is the time before a broken stream is opened again.
const reconnectDelay = 2 * time.Second

func eventsCommand(app *commands.App) *cobra.Command {
	var after string
	var kinds []string
	var once bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow what happens in the network and the services",
		Long: `Prints events as they happen until interrupted: one line each, or one JSON
object each with --json. Identifiers have no gap, so a consumer sees that it has
everything; where events were missed, because the reader was slow or the
controller was restarted, a line says so. A stream that breaks is opened again
and goes on where it stopped.`,
		Example: `  sluice events
  sluice events --kind network. --kind sos.session
  sluice events --after 0 --once --json      # what the controller remembers`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := client.EventsRequest{Kinds: kinds}
			if after != "" {
				n, err := strconv.ParseUint(after, 10, 64)
				if err != nil {
					return &command.UsageError{Err: fmt.Errorf("--after %q: use an event's identifier, a whole number", after)}
				}
				r.After, r.Resume = n, true
			}
			c, err := app.Client()
			if err != nil {
				return err
			}
			defer c.Close()
			return follow(cmd.Context(), app, c, r, once)
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "start after the event with this identifier; 0 starts with the oldest event that is kept")
	cmd.Flags().StringArrayVar(&kinds, "kind", nil, "print only events whose kind begins with this text; may be repeated")
	cmd.Flags().BoolVar(&once, "once", false, "stop after the latest event instead of waiting for more (with --after)")
	return cmd
}

var errDone = errors.New("done")

func follow(ctx context.Context, a *commands.App, c *client.Client, r client.EventsRequest, once bool) error {
	last, kinds := uint64(0), r.Kinds
	if once {
		var status struct {
			LastEvent uint64 `json:"last_event"`
		}
		if err := c.Get(ctx, "/api/v1/status", &status); err != nil {
			return err
		}
		last = status.LastEvent
		if !r.Resume || r.After >= last {
			return nil
		}
		r.Kinds = nil // the latest event must be seen, whatever its kind
	}
	for connected := false; ; {
		err := c.Events(ctx, r, func(e client.Event) error {
			connected = true
			if wanted(e.Kind, kinds) {
				if err := printEvent(a, e); err != nil {
					return err
				}
			}
			if e.ID != 0 {
				r.After, r.Resume = e.ID, true
			}
			if once && e.ID >= last {
				return errDone
			}
			return nil
		})
		switch {
		case errors.Is(err, errDone), ctx.Err() != nil:
			return nil
		case !errors.Is(err, io.EOF) && (!connected || !errors.Is(err, client.ErrUnreachable)):
			return err
		}
		fmt.Fprintln(a.Err, "sluice: the stream ended; trying again")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectDelay):
		}
	}
}

// wanted reports whether a kind begins with one of kinds. Reports of missed events are always
// wanted.
func wanted(kind string, kinds []string) bool {
	return len(kinds) == 0 || kind == "missed" || slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(kind, k) })
}

func printEvent(a *commands.App, e client.Event) error {
	if a.JSON {
		_, err := fmt.Fprintf(a.Out, "%s\n", e.Raw)
		return err
	}
	if e.ID == 0 {
		_, err := fmt.Fprintf(a.Out, "%s %s\n", e.Kind, e.Raw)
		return err
	}
	_, err := fmt.Fprintf(a.Out, "%s %d %s %s\n", e.At.Local().Format("15:04:05.000"), e.ID, e.Kind, e.Attrs)
	return err
}
