package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/handover/mobile"
)

func mobileStatusCommand(app *App) *cobra.Command {
	var moves int
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon, its interfaces and its latest moves",
		Example: `  sluice mobile status
  sluice mobile status --moves 20 --json`,
		Args: command.NoArgs,
	}
	interfaces := Table[mobile.InterfaceStatus]("name mac present link silent sends receives signal=DBM loss rtt_ns=RTT cost sent_packets=SENT received_packets=RECEIVED doubled_packets=TWICE barred")
	moved := Table[mobile.Move]("at=MOVED from to lease_ns=LEASE switch_ns=SWITCH why error")
	socket := socketFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := mobile.Dial(*socket)
		defer c.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), app.timeout)
		defer cancel()
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if n := len(s.Moves) - max(moves, 0); n > 0 {
			s.Moves = s.Moves[n:]
		}
		return app.Print(s, func(w io.Writer) {
			all, latest := s.Interfaces, s.Moves
			s.Interfaces, s.Moves = nil, nil
			Fields(w, s)
			fmt.Fprintln(w)
			interfaces(w, all)
			fmt.Fprintln(w)
			moved(w, latest)
		})
	}
	cmd.Flags().IntVar(&moves, "moves", 5, "how many of the latest moves to show, at most 64")
	return cmd
}
