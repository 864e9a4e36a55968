package cli

import (
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/controller/networkapi"
)

func networkTalkersCommand(app *App) *cobra.Command {
	var at string
	var limit int
	cmd := &cobra.Command{
		Use:   "talkers",
		Short: "List who uses the network most, as samples of packets let expect",
		Long: `Lists the largest traffic between two addresses over the last seconds, as samples
of packets let expect it: for that, switches must send sFlow (network.measure in
the configuration). Without --at, traffic counts where it comes in from hosts.`,
		Example: `  sluice network talkers --limit 5
  sluice network talkers --at 00000000000000a2/1`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []networkapi.Talker
			return app.get(cmd, networkPath+"talkers"+query("at", at, "limit", strconv.Itoa(limit)), &all, func(w io.Writer) {
				fmt.Fprintln(w, "AT\tFROM\tTO\tPROTOCOL\tRATE\tWITHIN")
				for _, t := range all {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.0f %%\n", portName(t.At), endName(t.Src, t.SrcPort), endName(t.Dst, t.DstPort), t.Protocol, bitRate(t.Bits), 100*t.Error)
				}
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "only what comes into a switch by this port, SWITCH/PORT")
	cmd.Flags().IntVar(&limit, "limit", 20, "how many at most")
	return cmd
}

// endName is an address, with its port if it has one.
func endName(address string, port uint16) string {
	if port == 0 {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}
