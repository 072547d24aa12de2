// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"
#include "model.h"
#include "state/json.h"

namespace zero::tool {
namespace {

constexpr char kExitStatus[] =
    "Exit status: 0 if all is well; 1 if something is damaged, differs or failed; 2 for wrong "
    "usage.";

constexpr char kTorchFooter[] =
    "For torch (a file of torch.save) and dcp (a directory of torch.distributed.checkpoint), run\n"
    "python -m libzero with the same arguments.\n";

constexpr char kImportFooter[] =
    "Entries that only PATH has, or that it lacks, are refused by name.\n"
    "python -m libzero also takes\n"
    "--buffers PATTERN,...  tensors that are not trained, if parameters have no names\n"
    "--order registration   unnamed parameters follow the model's order\n"
    "--order dimensions     the same, but those of two or more dimensions are the first group\n"
    "--order FILE           names, one per line, in the optimizer's order\n"
    "--fill                 start missing state and settings with the rule's initial values\n";

void add_checkpoint(CLI::App& app, Request& request) {
  app.add_option("CHECKPOINT", request.checkpoint,
                 "its directory, or a folder of checkpoints: the newest")
      ->required();
}

void add_two(CLI::App& app, Request& request) {
  add_checkpoint(app, request);
  app.add_option("OTHER", request.other, "another one")->required();
}

void add_output(CLI::App& app, Request& request, const char* name, const char* help) {
  app.add_option(name, request.other, help)->required();
  app.add_flag("--replace", request.replace, std::string("replace ") + name + " if it exists");
}

void add_merge(CLI::App& app, Request& request) {
  add_checkpoint(app, request);
  add_output(app, request, "FILE", ".safetensors file to write, or - for standard output");
  app.add_flag("--with-state", request.with_state,
               "also the optimizer's state, as NAME.SLOT, and its settings");
}

const Words kFormatWords = {"hf", "torch", "dcp"};
const Words kFloatingWords = {"F32", "F64", "BF16", "F16"};
const Words kPartitionWords = {"even", "greedy", "greedy-in-order"};
const CLI::IsMember kFloating(kFloatingWords, CLI::ignore_case);
const CLI::Range kWorlds(1, 65536);

void add_model(CLI::App& app, Request& request) {
  CLI::Option* const model = app.add_option(
      "MODEL", request.checkpoint,
      "a checkpoint, a .safetensors file, lines NAME 768x3072 [F32]\n(- for standard "
      "input), or a number of parameters:\n7B, 124M, 7e9");
  CLI::Option* const config =
      app.add_option("--config", request.config, "a Hugging Face config.json, in place of MODEL")
          ->option_text("FILE")
          ->excludes(model);
  app.callback([model, config] {
    if (model->empty() && config->empty()) throw CLI::RequiredError("MODEL or --config");
  });
  app.add_option("--partition", request.partition, "how parameters are assigned to owners (even)")
      ->check(CLI::IsMember(kPartitionWords));
  app.add_option("--instances", request.instances, "number of copies of the state (1)")
      ->check(kWorlds);
}

/// Adds an option whose values are separated by commas, as in `example`.
template <class T>
CLI::Option* add_list(CLI::App& app, const char* name, std::vector<T>& values, const char* example,
                      const char* help) {
  return app.add_option(name, values, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text(example);
}

std::string check_rule(const std::string& name) {
  const Result<int32_t> number = number_of_rule(name);
  return number.ok() ? "" : number.failure().text();
}

std::string check_image(const std::string& name) {
  return name.ends_with(".svg") ? "" : shown(name) + " does not end with .svg, the only format";
}

void add_estimate(CLI::App& app, Request& request) {
  add_model(app, request);
  add_list(app, "--world", request.worlds, "RANKS,...", "numbers of ranks (1,2,4,8,16,32,64)")
      ->check(kWorlds);
  add_list(app, "--rule", request.rules, "NAME,...", "update rules (adamw)")->check(check_rule);
  add_list(app, "--dtype", request.dtypes, "DTYPE,...", "F32, F64, BF16, F16 (as in MODEL)")
      ->transform(kFloating);
  app.add_option("--grad-dtype", request.grad_dtype, "dtype of gradients (that of the parameters)")
      ->transform(kFloating);
  CLI::Option* const hosts =
      app.add_option("--hosts", request.hosts,
                     "number of hosts; shared parameters are stored once per host (1)")
          ->option_text("COUNT")
          ->check(kWorlds);
  app.add_option("--ranks-per-host", request.ranks_per_host, "number of ranks per host")
      ->option_text("COUNT")
      ->check(kWorlds)
      ->excludes(hosts);
  app.add_option("--plot", request.other, "an image to write")
      ->option_text("FILE.svg")
      ->check(check_image);
  app.add_flag("--replace", request.replace, "replace FILE.svg if it exists");
}

void add_reshard(CLI::App& app, Request& request) {
  add_checkpoint(app, request);
  add_output(app, request, "DIRECTORY", "checkpoint to write");
  app.add_option("--world", request.worlds[0], "number of ranks")->required()->check(kWorlds);
}

void add_format(CLI::App& app, Request& request, const char* name, const char* help) {
  app.add_option(name, request.format, help)->required()->check(CLI::IsMember(kFormatWords));
}

void add_export(CLI::App& app, Request& request) {
  add_format(app, request, "--to", "hf: Hugging Face's safetensors; torch, dcp: see below");
  add_checkpoint(app, request);
  add_output(app, request, "PATH", "to write");
  app.add_option("--shard-bytes", request.shard_bytes, "hf: maximum bytes per file (5000000000)")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  app.footer(text(kTorchFooter, kExitStatus));
}

void add_import(CLI::App& app, Request& request) {
  add_format(app, request, "--from",
             "hf: Hugging Face's safetensors, or one file; torch, dcp: see below");
  app.add_option("PATH", request.checkpoint, "path to read; hf: also - for standard input")
      ->required();
  add_output(app, request, "CHECKPOINT", "directory to write: a checkpoint of one rank");
  app.add_option("--rule", request.rules[0], "update rule, if PATH does not name one (adamw)")
      ->check(check_rule);
  add_list(app, "--ignore", request.ignore, "PATTERN,...",
           "names of tensors, keys and files that may be dropped");
  app.footer(text(kTorchFooter, kImportFooter, kExitStatus));
}

void add_plan(CLI::App& app, Request& request) {
  add_model(app, request);
  app.add_option("--world", request.worlds[0], "number of ranks")->required()->check(kWorlds);
  app.add_option("--rule", request.rules[0], "update rule (adamw)")->check(check_rule);
}

void add_trace(CLI::App& app, Request& request) {
  CLI::App& merge = *app.add_subcommand(
      "merge", "summarize the traces of all ranks, and merge them into one file");
  merge.add_option("DIRECTORY", request.checkpoint, "where ZERO_TRACE put them")->required();
  merge.add_option("-o,--output", request.other,
                   "a file to write, for Perfetto and chrome://tracing (none)");
  merge.add_flag("--replace", request.replace, "replace it if it exists");
  merge.add_flag("--json", request.json, "print JSON");
  app.require_subcommand(1);
}

void add_top(CLI::App& app, Request& request) {
  app.add_option("DIRECTORY|PID", request.checkpoint,
                 "where ZERO_TRACE puts them, or the process ID of one rank")
      ->required();
  app.add_option("--interval", request.interval_s, "seconds between updates (1)")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--count", request.count, "stop after this many updates")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
}

struct Command {
  const char* name;
  Result<bool> (*run)(const Request&);
  void (*add_arguments)(CLI::App&, Request&);
  const char* help;
};

constexpr Command kCommands[] = {
    {"inspect", inspect, add_checkpoint, "show what a checkpoint holds, without reading tensors"},
    {"verify", verify, add_checkpoint, "compare every byte of a checkpoint with its checksum"},
    {"diff", diff, add_two, "compare two checkpoints, of any worlds, bit for bit"},
    {"merge", merge, add_merge, "write a checkpoint as one safetensors file"},
    {"reshard", reshard, add_reshard,
     "write the checkpoint that another number of ranks would save"},
    {"export", export_model, add_export, "write a checkpoint as files for Hugging Face or torch"},
    {"import", import_model, add_import, "write a checkpoint from files of Hugging Face or torch"},
    {"estimate", estimate, add_estimate,
     "calculate the bytes that a rank needs for a model and its optimizer"},
    {"plan", plan, add_plan, "calculate how much of a model's optimizer each rank owns"},
    {"trace", merge_traces, add_trace,
     "summarize the traces of all ranks, and merge them into one file"},
    {"top", top, add_top, "show what the ranks of a traced job do, and which ranks they wait for"},
    {"doctor", doctor, [](CLI::App&, Request&) {}, "check that this host has what ranks need"},
};

}  // namespace

Words values_of(const std::string& option) {
  if (option == "--partition") return kPartitionWords;
  if (option == "--dtype" || option == "--grad-dtype") return kFloatingWords;
  if (option == "--to" || option == "--from") return kFormatWords;
  return option == "--rule" ? rule_names() : Words();
}

void define(CLI::App& app, Request& request) {
  app.description("Inspect and convert libzero's checkpoints, and examine ranks and their hosts.");
  app.set_version_flag("--version", text("zero ", ZERO_VERSION_MAJOR, '.', ZERO_VERSION_MINOR, '.',
                                         ZERO_VERSION_PATCH));
  app.set_help_flag("-h,--help", "print this and exit");
  app.require_subcommand(0, 1);
  app.footer(kExitStatus);
  for (const Command& command : kCommands) {
    CLI::App& sub = *app.add_subcommand(command.name, command.help);
    command.add_arguments(sub, request);
    sub.add_flag("--json", request.json, "print JSON");
  }
  app.add_subcommand(kHelp, "print the help for a command")
      ->add_option("COMMAND", "such as zero help trace merge");
}

RunCommand parsed_command(const CLI::App& app) {
  for (const Command& command : kCommands)
    if (app.got_subcommand(command.name)) return command.run;
  return nullptr;
}

}  // namespace zero::tool
