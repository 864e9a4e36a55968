package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
)

func networkLinksCommand(app *App) *cobra.Command {
	return GetCommand(app, "links", "List the links between switches, each direction by itself", networkPath+"links", func(w io.Writer, all []networkapi.Link) {
		fmt.Fprintln(w, "FROM\tTO\tLATENCY\tJITTER\tLOSS\tQUEUE LOSS\tCAPACITY\tUSED\tAVAILABLE")
		for _, l := range all {
			fmt.Fprintf(w, "%s\t%s\t", portName(l.From), portName(l.To))
			linkRow{l.Latency, l.Jitter, pathLoss(l), queueLoss(l), l.Capacity, l.Used, l.Available}.print(w)
		}
	})
}

func networkHistoryCommand(app *App) *cobra.Command {
	var since string
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "history SWITCH/PORT",
		Short: "Show what was measured of a link within the last hour",
		Long: `Shows what was measured of one direction of a link: the one that leaves by the
port. "sluice network links" lists the links.`,
		Example: `  sluice network history 00000000000000a1/3 --since 10m
  sluice network history 00000000000000a1/3 --csv >link.csv`,
		Args: command.ExactArgs("SWITCH/PORT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asCSV && app.JSON {
				return &command.UsageError{Err: errors.New("--csv and --json exclude each other")}
			}
			c, err := app.Client()
			if err != nil {
				return err
			}
			defer c.Close()
			var all []networkapi.LinkHistory
			if err := c.Get(cmd.Context(), networkPath+"links/history"+query("from", args[0], "since", since), &all); err != nil {
				return err
			}
			if asCSV {
				return writeLinkCSV(app.Out, all)
			}
			return app.Print(all, func(w io.Writer) { printHistory(w, all) })
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "from when on: how long ago, like 10m, or a time like 2026-01-31T12:00:00Z")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "comma-separated values, in base units")
	return cmd
}

func printHistory(w io.Writer, all []networkapi.LinkHistory) {
	fmt.Fprintln(w, "AT\tTO\tLATENCY\tJITTER\tLOSS\tQUEUE LOSS\tCAPACITY\tUSED\tAVAILABLE")
	for _, h := range all {
		for _, p := range h.Points {
			fmt.Fprintf(w, "%s\t%s\t", p.At.Local().Format(time.DateTime), portName(h.To))
			linkRow{p.Latency, p.Jitter, share(p.Loss), share(p.QueueLoss), p.Capacity, p.Used, p.Available}.print(w)
		}
	}
}

// pathLoss is what the path of a link loses, of how many packets, and until when those
// were counted.
func pathLoss(l networkapi.Link) string {
	if l.LossAt == nil {
		return "-"
	}
	return fmt.Sprintf("%s of %d until %s", share(l.Loss), l.LossPackets, l.LossAt.Local().Format(time.TimeOnly))
}

// queueLoss is what queues of a link have lost within the last minute, and until when.
func queueLoss(l networkapi.Link) string {
	if l.QueueLossAt == nil {
		return "-"
	}
	return fmt.Sprintf("%s until %s", share(l.QueueLoss), l.QueueLossAt.Local().Format(time.TimeOnly))
}

func share(s float64) string { return fmt.Sprintf("%.3g %%", 100*s) }

// linkRow is what tables of links have in common.
type linkRow struct {
	latency, jitter           float64
	loss, queueLoss           string
	capacity, used, available uint64
}

func (r linkRow) print(w io.Writer) {
	latency, jitter, capacity, available := "-", "-", "-", "-"
	if r.latency > 0 {
		latency, jitter = fmt.Sprintf("%.2f ms", r.latency), fmt.Sprintf("%.2f ms", r.jitter)
	}
	if r.capacity > 0 {
		capacity, available = bitRate(float64(r.capacity)), bitRate(float64(r.available))
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", latency, jitter, r.loss, r.queueLoss, capacity, bitRate(float64(r.used)), available)
}

// writeLinkCSV writes one line for each point. What is not known is left empty.
func writeLinkCSV(w io.Writer, all []networkapi.LinkHistory) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"from", "to", "at", "interval_s", "latency_s", "jitter_s", "loss", "capacity_bit_s", "used_bit_s", "available_bit_s", "queue_loss"}}
	for _, h := range all {
		for _, p := range h.Points {
			latency, jitter, capacity, available := "", "", "", ""
			if p.Latency > 0 {
				latency, jitter = number(p.Latency/1000), number(p.Jitter/1000)
			}
			if p.Capacity > 0 {
				capacity, available = strconv.FormatUint(p.Capacity, 10), strconv.FormatUint(p.Available, 10)
			}
			rows = append(rows, []string{
				portName(h.From), portName(h.To), p.At.UTC().Format(time.RFC3339Nano), number(p.Seconds),
				latency, jitter, number(p.Loss), capacity, strconv.FormatUint(p.Used, 10), available, number(p.QueueLoss),
			})
		}
	}
	return out.WriteAll(rows)
}

func portName(p networkapi.Place) string { return fmt.Sprintf("%s/%d", p.Switch, p.Port) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }
