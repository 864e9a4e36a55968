package cli

import (
	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
)

// files is the section FILES of the manual page.
const files = ".TP\n/etc/sluice/controller.yaml, /etc/sluice/agent.yaml\nConfigurations.\n.TP\n/var/lib/sluice\nState of the controller, and the token of its API.\n"

// Reference is the generated reference, by file name: commands, configuration
// and the OpenAPI document.
func Reference() (map[string]string, error) {
	openapi, err := controller.OpenAPI()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"cli.md":           command.Reference(New(&App{Output: command.Standard()})),
		"configuration.md": command.Generated("sluice") + configurationReference(),
		"openapi.yaml":     openapi,
	}, nil
}

func configurationReference() string {
	controller := config.DefaultController()
	controller.DataDir = "/var/lib/sluice"
	return "# Configuration\n\n" +
		"Controller, agent, mobile device and gateways read one YAML file each (`--config`). Over it go the environment, where `api.listen` is\n" +
		"`SLUICE_API_LISTEN`, and `--set api.listen=127.0.0.1:8080`. `sluice config check FILE` says everything that is wrong\n" +
		"with a file, `sluice config show` prints what takes effect, `sluice config example controller` a file to begin with.\n\n" +
		"## Controller\n\n" + config.Reference(controller) + "\n## Agent\n\n" + config.Reference(config.DefaultAgent()) + "\n## Mobile device\n\n" + config.Reference(mobileDevice()) +
		"\n## Ingress gateway\n\n`sluice cinema ingress`, whose kind is `cinema-ingress`.\n\n" + config.Reference(config.DefaultIngress()) +
		"\n## Egress gateway\n\n`sluice cinema egress`, whose kind is `cinema-egress`.\n\n" + config.Reference(config.DefaultEgress()) +
		"\n## Contexts\n\nThe operator's file of controllers (`sluice context`), " + contextsFileIs + ".\n\n" + config.Reference(&config.Contexts{})
}

// mobileDevice is the default configuration without what this machine has of its
// own.
func mobileDevice() *config.Mobile {
	m := config.DefaultMobile()
	m.StateDir = "/var/lib/sluice/mobile"
	return m
}
