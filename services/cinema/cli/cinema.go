package cli

import (
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const cinemaPath = api.Prefix + "/" + cinema.Name + "/"

func cinemaCommand(app *commands.App) *cobra.Command {
	return commands.Group("cinema", "Bring live channels to many viewers", `  sluice cinema channels add news --number 1 --bit-rate 2Mbit --source rtsp://10.0.0.7/live
  sluice cinema gateways egress list
  sluice cinema viewers list
  sluice cinema trees`,
		cinemaIngressCommand(app), cinemaEgressCommand(app),
		cinemaChannelsCommand(app), cinemaGatewaysCommand(app), cinemaViewersCommand(app),
		commands.Get(app, "trees", "List the trees of the channels: links, switches, copies", cinemaPath+"trees", commands.Table[cinema.TreeInfo](
			"channel bit_rate from links viewers")),
		commands.Get(app, "links", "List what channels reserve of the links, and the most that they may", cinemaPath+"links", commands.Table[cinema.LinkInfo]("")),
		commands.Get(app, "lineup", "Show what viewers can choose from", cinemaPath+"lineup", commands.Fields[gatewayapi.Lineup]))
}

func cinemaChannelsCommand(app *commands.App) *cobra.Command {
	d := commands.Declared[cinema.ChannelSpec, cinema.ChannelInfo]{
		App: app, Singular: "a channel", Path: cinemaPath + "channels",
		Columns: "number name title on_air viewers bit_rate measured at source view_password=PROTECTED origin trouble",
		Flags:   map[string]string{"view_password": "view-password-file", "publish_password": "publish-password-file"},
	}
	set, remove := d.Set(), d.Remove()
	set.Short += "; a password that is not given again is none"
	remove.Short += "; its viewers get it no longer"
	return commands.Group("channels", "Say which channels there are", `  sluice cinema channels add news --number 1 --title "The News" --bit-rate 2Mbit \
    --source rtsp://10.0.0.7/live
  sluice cinema channels add stage --number 2 --bit-rate 3Mbit \
    --publish-password-file stage.password
  sluice cinema channels set news --number 1 --bit-rate 4Mbit --source rtsp://10.0.0.7/live
  sluice cinema channels list
  sluice cinema channels remove news`,
		d.List(), d.Show(), d.Add(), set, remove)
}

func cinemaGatewaysCommand(app *commands.App) *cobra.Command {
	return commands.Group("gateways", "Say which gateways there are, and see how they do", `  sluice cinema gateways ingress list
  sluice cinema gateways egress drain east`,
		cinemaGateways(app, "ingress", "Ingress gateways: by them producers' pictures come into the network", "studio"),
		cinemaGateways(app, "egress", "Egress gateways: by them viewers get the pictures", "east"))
}

// cinemaGateways returns the commands for the gateways of one kind, "ingress" or "egress". example is
// the name of a gateway in the commands' examples.
func cinemaGateways(app *commands.App, kind, short, example string) *cobra.Command {
	cmd := commands.Agents(app, cinema.Name+"/"+kind)
	cmd.Use, cmd.Short = kind, short
	cmd.Example = strings.NewReplacer("KIND", kind, "NAME", example).Replace(`  sluice cinema gateways KIND add NAME --url https://192.0.2.10:8440 --addr 10.0.1.10
  sluice cinema gateways KIND list
  sluice cinema gateways KIND drain NAME
  sluice cinema gateways KIND remove NAME`)
	return cmd
}

func cinemaViewersCommand(app *commands.App) *cobra.Command {
	remove := commands.Remove(app, "remove ID", "Copy nothing to a viewer any more", cinemaPath+"viewers")
	remove.Long = `Copies nothing to a viewer any more. Its gateway is not told: the viewer sees a picture
that stands still, until it leaves. It may come again, as another.`
	return commands.Group("viewers", "List and remove viewers", `  sluice cinema viewers list
  sluice cinema viewers remove 00112233445566778899aabbccddeeff`,
		commands.Get(app, "list", "List the viewers: gateway, channels, changes, losses", cinemaPath+"viewers", commands.Table[cinema.ViewerInfo](
			"id gateway port channels since address player changes zap packets lost")), remove)
}

// publicTLS returns the TLS configuration of a gateway's public interface, or nil for plain HTTP.
func publicTLS(p GatewayPublic) (*tls.Config, error) {
	if !p.TLS.Enabled() {
		return nil, nil //nolint:nilnil // none is configured
	}
	c, err := pki.Server(p.TLS.Files(), false)
	if err != nil {
		return nil, fmt.Errorf("public.tls: %w", err)
	}
	return c, nil
}
