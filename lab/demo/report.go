package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// outcome holds the result of one download of the file.
type outcome struct {
	name     string
	download testbed.Download
	access   testbed.Access // the line of the server's log
	peerMAC  string         // MAC address of the server in the client's neighbour table
	same     bool           // reports whether the SHA-256 of the received file is that of the served one
}

// printReport prints the downloads beside each other.
func printReport(out io.Writer, linkRate float64, outcomes []outcome) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(label string, cell func(outcome) string) {
		fmt.Fprintf(w, "  %s", label)
		for _, o := range outcomes {
			fmt.Fprintf(w, "\t%s", cell(o))
		}
		fmt.Fprintln(w)
	}
	row("", func(o outcome) string { return o.name })
	row("connect", func(o outcome) string { return o.download.Connect.Round(time.Millisecond).String() })
	row("time", func(o outcome) string { return fmt.Sprintf("%.2f s", o.download.Total.Seconds()) })
	row("goodput", func(o outcome) string { return fmt.Sprintf("%.1f Mbit/s", o.download.Mbit()) })
	row("share of the link", func(o outcome) string { return fmt.Sprintf("%.0f %%", 100*o.download.Mbit()*1e6/linkRate) })
	row("SHA-256", func(o outcome) string {
		if o.same {
			return "equal"
		}
		return "DIFFERENT"
	})
	row("client's own end", func(o outcome) string { return o.download.Local })
	row("client talked to", func(o outcome) string { return o.download.Remote + ", " + o.peerMAC })
	row("server's own end", func(o outcome) string { return o.access.Local })
	row("server talked to", func(o outcome) string { return o.access.Remote })
	return w.Flush()
}

// faults lists violations of what must hold at any speed. If there are none the demo has shown what
// it promises.
func faults(outcomes []outcome) []string {
	var all []string
	for _, o := range outcomes {
		if !o.same {
			all = append(all, o.name+": the file arrived changed")
		}
		if o.access.Remote != o.download.Local {
			all = append(all, fmt.Sprintf("%s: the server saw %s, the client is %s", o.name, o.access.Remote, o.download.Local))
		}
		if o.access.Local != o.download.Remote {
			all = append(all, fmt.Sprintf("%s: the client talked to %s, the server is %s", o.name, o.download.Remote, o.access.Local))
		}
	}
	return all
}
