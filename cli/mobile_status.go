package cli

import (
	"context"
	"fmt"
	"io"
	"time"

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
		return app.Print(s, func(w io.Writer) { mobileTable(w, s) })
	}
	cmd.Flags().IntVar(&moves, "moves", 5, "how many of the latest moves to show, at most 64")
	return cmd
}

func mobileTable(w io.Writer, s mobile.Status) {
	fmt.Fprintf(w, "device\t%s, running since %s\n", s.Device, s.Started.Local().Format(time.DateTime))
	fmt.Fprintf(w, "virtual interface\t%s\t%v\n", s.VNI.Name, s.VNI.MAC)
	if s.Lease != nil {
		fmt.Fprintf(w, "address\t%v, from %v, until %s\n", s.Lease.Address, s.Lease.Server, s.Lease.Expires.Local().Format(time.DateTime))
	} else {
		fmt.Fprint(w, "address\tnone\n")
	}
	switch {
	case s.Wish != "" && s.WishEnds.IsZero():
		fmt.Fprintf(w, "kept on\t%s\n", s.Wish)
	case s.Wish != "":
		fmt.Fprintf(w, "kept on\t%s until %s\n", s.Wish, s.WishEnds.Local().Format(time.DateTime))
	}
	if s.Orders != "" {
		fmt.Fprintf(w, "orders of the network\t%s\n", trimmed(s.Orders))
	}
	fmt.Fprint(w, "\nINTERFACE\tMAC\tLINK\tUSE\tSIGNAL\tLOSS\tRTT\tCOST\tSENT\tRECEIVED\tTWICE\t\n")
	for _, i := range s.Interfaces {
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", i.Name, i.MAC, mobileLink(i), mobileUse(s, i), mobileSignal(i),
			mobileLoss(i), mobileRTT(i), i.Cost, i.Sent, i.Received, i.Doubled, trimmed(i.Barred))
	}
	if len(s.Moves) == 0 {
		return
	}
	fmt.Fprint(w, "\nMOVED\tFROM\tTO\tLEASE\tSWITCH\tWHY\t\n")
	for _, m := range s.Moves {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%s\t%s\n", m.At.Local().Format(time.DateTime), m.From, m.To,
			m.Lease.Round(time.Microsecond), m.Switch.Round(time.Microsecond), m.Why, trimmed(m.Error))
	}
}

func mobileLink(i mobile.InterfaceStatus) string {
	switch {
	case !i.Present:
		return "absent"
	case i.Link && i.Silent:
		return "silent"
	case i.Link:
		return "up"
	}
	return "down"
}

func mobileUse(s mobile.Status, i mobile.InterfaceStatus) string {
	switch {
	case i.Sends:
		return "sends"
	case i.Receives:
		return "listens"
	case s.Joining == i.Name:
		return "joining"
	}
	return "-"
}

func mobileSignal(i mobile.InterfaceStatus) string {
	if i.Signal == 0 {
		return "-"
	}
	return fmt.Sprintf("%d dBm", i.Signal)
}

func mobileLoss(i mobile.InterfaceStatus) string {
	if i.Probes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*i.Loss)
}

func mobileRTT(i mobile.InterfaceStatus) string {
	if i.RTT == 0 {
		return "-"
	}
	return i.RTT.Round(10 * time.Microsecond).String()
}

// moveTable says how a move went.
func moveTable(m mobile.Move) func(io.Writer) {
	return func(w io.Writer) {
		how := "with a gap"
		if m.MakeBeforeBreak {
			how = "without letting go of " + m.From
		}
		fmt.Fprintf(w, "on %s with address %s, %s\n", m.To, m.Address, how)
		fmt.Fprintf(w, "lease after %v, switched in %v\n", m.Lease.Round(time.Microsecond), m.Switch.Round(time.Microsecond))
	}
}
