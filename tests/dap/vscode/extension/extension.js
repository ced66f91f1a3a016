// Stands in for Microsoft's extension "Python Debugger": what VS Code itself needs to debug by a configuration of the
// type "debugpy", and nothing that would help an adapter. Sessions begin by `startDebugging`, which VS Code answers.
//
// Of two files in the folder MESHRT_TEST_VSCODE one says what has passed, and one is a socket for the test:
//
//   messages   a line of JSON for each message of an adapter or to it: {"session": "name", "message": {...}}
//   commands   takes {"command": "id", "arguments": [...]}, in which {"file": "/path"} is a Uri of that file, and
//              answers {} when VS Code has run the command, or {"error": "why not"}
'use strict';
const fs = require('fs');
const net = require('net');
const path = require('path');
const readline = require('readline');
const vscode = require('vscode');

const folder = process.env.MESHRT_TEST_VSCODE;

exports.activate = () => {
    vscode.debug.registerDebugAdapterDescriptorFactory('debugpy', {
        createDebugAdapterDescriptor({ configuration }) {
            const { connect, debugAdapterPython, debugAdapterPath } = configuration;
            return connect
                ? new vscode.DebugAdapterServer(connect.port, connect.host)
                : new vscode.DebugAdapterExecutable(debugAdapterPython, [debugAdapterPath]);
        },
    });
    vscode.debug.registerDebugAdapterTrackerFactory('debugpy', {
        createDebugAdapterTracker: ({ name }) => ({
            onWillReceiveMessage: (message) => note(name, message),
            onDidSendMessage: (message) => note(name, message),
        }),
    });
    net.createServer(serve).listen(path.join(folder, 'commands'));
};

// Synchronous: what a test reads is in the order in which it has passed, up to what it has seen the effect of.
function note(session, message) {
    fs.appendFileSync(path.join(folder, 'messages'), JSON.stringify({ session, message }) + '\n');
}

async function serve(connection) {
    for await (const line of readline.createInterface({ input: connection })) {
        connection.write(JSON.stringify(await run(JSON.parse(line))) + '\n');
    }
}

async function run({ command, arguments: given }) {
    const revived = given.map((one) => (one.file ? vscode.Uri.file(one.file) : one));
    try {
        await vscode.commands.executeCommand(command, ...revived);
        return {};
    } catch (error) {
        return { error: String(error) };
    }
}
