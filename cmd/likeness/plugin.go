package main

import "github.com/spf13/cobra"

func newPluginCommand(a *app) *cobra.Command {
	return newGroup("plugin", "Check plugins, and be one",
		newPluginCheckCommand(a),
		newPluginDeviceCommand(a),
		newPluginServeCommand(a),
	)
}
