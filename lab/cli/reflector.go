package cli

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab/reflector"
	"github.com/sluice-net/sluice/openflow"
)

func reflectorCommand() *cobra.Command {
	var listen, out string
	cmd := &cobra.Command{
		Use:   "reflector",
		Short: "Run a controller that only answers, to compare others with",
		Long: `Runs an OpenFlow controller that sends every packet that switches pass to it out of
one port, and does nothing else, until Ctrl-C. It installs no rules. Its cost is the least
that a controller in Go can have with the same switches and load.`,
		Example: "  sluice-lab reflector --listen 127.0.0.1:6653 --out 2:7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			port, err := parseSwitchPort(out)
			if err != nil {
				return &command.UsageError{Err: fmt.Errorf("--out %q: %w", out, err)}
			}
			l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			return reflector.Serve(cmd.Context(), l, port)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:6653", "address at which switches connect")
	cmd.Flags().StringVar(&out, "out", "", "port out of which packets are sent, as SWITCH:PORT, a datapath identifier in hexadecimal digits, and a number")
	return cmd
}

// parseSwitchPort parses a port like 2:7.
func parseSwitchPort(text string) (p reflector.Port, err error) {
	of, number, found := strings.Cut(text, ":")
	d, err1 := strconv.ParseUint(of, 16, 64)
	n, err2 := strconv.ParseUint(number, 10, 32)
	if !found || err1 != nil || err2 != nil || n == 0 || uint32(n) > openflow.PortMax {
		return p, errors.New("want SWITCH:PORT, like 2:7")
	}
	return reflector.Port{Switch: openflow.DatapathID(d), Number: uint32(n)}, nil
}
