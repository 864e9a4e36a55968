package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst"
	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
)

const mfPath = api.Prefix + "/" + mobilityfirst.Name + "/"

func mfCommand(app *commands.App) *cobra.Command {
	cmd := commands.Group("mf", "Names that stay when hosts move, and chunks to them (MobilityFirst)", `  sluice mf host --interface eth0
  sluice mf recv > film.mp4
  sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930 film.mp4
  sluice mf name new laptop.key
  sluice mf put film.mp4
  sluice mf get 5a0c9e1b7d3f42688c1e0f9a7b6d5c4e3f2a1b0c film.mp4
  sluice mf gnrs --dir /var/lib/sluice/names`,
		mfHostCommand(app), mfSendCommand(app), mfRecvCommand(app), mfPingCommand(app), mfPerfCommand(app), mfPutCommand(app), mfGetCommand(app), mfCacheCommand(app), mfProxyCommand(app), mfStorageCommand(app), mfComputeCommand(app), mfAccessCommand(app), mfGNRSCommand(app), mfNameCommand(app),
		mfNodesCommand(app), mfCustodyCommand(app), mfFunctionsCommand(app),
		commands.Get(app, "domains", "Show the controller's name service and its domains", api.Prefix+"/"+nameservice.Name+"/status", func(w io.Writer, s nameservice.Status) {
			commands.Table[nameservice.DomainInfo]("name address self round_trip silent behind")(w, s.Domains)
		}),
		commands.Get(app, "paths", "List the paths between names", mfPath+"paths", commands.Table[mobilityfirst.PathInfo]("id ends hops lease")))
	cmd.Long = `A name (GUID) is the hash of a key, and stays the same when its host moves. A host sends chunks to
names, whatever their addresses. The name service stores where a name is, which only the
owner of the key can change.`
	return cmd
}
