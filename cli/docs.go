package cli

import (
	"strings"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller"
	"github.com/sluice-net/sluice/kit/commands"
)

// files is the section FILES of the manual page.
const files = ".TP\n/etc/sluice/controller.yaml, /etc/sluice/agent.yaml\nConfigurations.\n.TP\n/var/lib/sluice\nState of the controller, and the token of its API.\n"

// Reference returns the generated reference of a program with these services, by file name:
// commands, configuration and the OpenAPI document.
func Reference(services []commands.Service) (map[string]string, error) {
	openapi, err := controller.OpenAPI(commands.Definitions(services))
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"cli.md":           command.Reference(New(&commands.App{Output: command.Standard()}, services)),
		"configuration.md": command.Generated("sluice") + configurationReference(commands.Kinds(services)),
		"openapi.yaml":     openapi,
	}, nil
}

func configurationReference(kinds []config.Kind) string {
	var b strings.Builder
	b.WriteString("# Configuration\n\n" +
		"Controller, agent, mobile device and gateways read one YAML file each (`--config`). The environment (`SLUICE_API_LISTEN` for `api.listen`)\n" +
		"and `--set api.listen=127.0.0.1:8080` override it. `sluice config check FILE` reports everything that is wrong with a\n" +
		"file, `sluice config show` prints the resulting settings, and `sluice config example controller` prints a file to start from.\n\n")
	for _, k := range kinds {
		b.WriteString("## " + k.Title + "\n\n")
		if k.Intro != "" {
			b.WriteString(k.Intro + "\n\n")
		}
		b.WriteString(withoutMachine(config.Reference(k.Default())) + "\n")
	}
	b.WriteString("## Contexts\n\nThe operator's file of controllers (`sluice context`), " + commands.ContextsFileIs + ".\n\n" + config.Reference(&config.Contexts{}))
	return b.String()
}

// withoutMachine replaces the default data folder of this user by that of a system service in a
// reference.
func withoutMachine(reference string) string {
	return strings.ReplaceAll(reference, "`"+config.DefaultDataDir(), "`/var/lib/sluice")
}
